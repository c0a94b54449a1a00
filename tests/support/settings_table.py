"""The README's table of settings, from their docstrings: `python -m support.settings_table`."""

from typing import get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from runtime.settings import Settings


def settings_table() -> str:
    """Every setting as a row of a Markdown table."""
    rows = [
        f"| `TALLYSTICK_{name.upper()}` | {_default(field)} | {_description(field)} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join(["| variable | default | what it is |", "|---|---|---|", *rows])


def _default(field: FieldInfo) -> str:
    default = field.default
    if default is None or default in ((), {}):
        return ""
    shown = default.get_secret_value() if isinstance(default, SecretStr) else default
    return f"`{str(shown).lower() if isinstance(shown, bool) else shown}`"


def _description(field: FieldInfo) -> str:
    text = " ".join((field.description or "").split())
    choices = getattr(field.annotation, "__args__", ()) if _is_choice(field) else ()
    return text + (f" One of {', '.join(f'`{choice}`' for choice in choices)}." if choices else "")


def _is_choice(field: FieldInfo) -> bool:
    return str(get_origin(field.annotation)) == "typing.Literal"


if __name__ == "__main__":
    print(settings_table())  # noqa: T201 - the point
