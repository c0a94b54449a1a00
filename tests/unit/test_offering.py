"""A team's own operations stand beside ours, or the process does not start."""

import sys
from types import ModuleType

import pytest

from operations.registry import OPERATIONS
from runtime.offering import offering_of
from runtime.settings import Settings
from workflows.payments_charge import ChargeCard


def _module(monkeypatch: pytest.MonkeyPatch, name: str, **members: object) -> str:
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)
    offering_of.cache_clear()
    return name


def test_what_is_shipped_is_offered() -> None:
    assert offering_of(()).operations == OPERATIONS


def test_a_module_without_workflows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="team_empty has no WORKFLOWS"):
        offering_of((_module(monkeypatch, "team_empty"),))


def test_a_name_that_is_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="share a name"):
        offering_of((_module(monkeypatch, "team_taken", WORKFLOWS=(ChargeCard,)),))


def test_modules_are_named_in_one_setting_with_commas() -> None:
    settings = Settings.model_validate({"extra_operations": "team.one, team.two,"})
    assert settings.extra_operations == ("team.one", "team.two")
