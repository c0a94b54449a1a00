"""The README keeps its promises: settings, links and commands exist."""

import re
from pathlib import Path

from runtime.cli import app
from runtime.settings import Settings
from support.settings_table import settings_table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_every_setting_is_explained_in_the_readme_as_in_the_code() -> None:
    undocumented = [n for n, field in Settings.model_fields.items() if not field.description]
    assert undocumented == []
    assert settings_table() in README, "make it with: python -m support.settings_table"


def test_every_link_in_the_docs_leads_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_command_in_the_readme_exists() -> None:
    named = {
        command.name or command.callback.__name__
        for command in app.registered_commands
        if command.callback
    }
    named |= {group.name for group in app.registered_groups}
    mentioned = set(re.findall(r"tallystick ([a-z]+)", README))
    assert mentioned <= named, mentioned - named
