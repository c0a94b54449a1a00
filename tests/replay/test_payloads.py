"""Payloads only ever gain fields, with defaults: a run outlives the code that started it."""

import inspect
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from operations import contracts, guarantees, reconciliation

SNAPSHOT = Path(__file__).parent / "payloads.json"
"""Each model's fields as they were first released, and whether they are required. Add to it what
you add; what stands in it stays."""


def fields_now() -> dict[str, dict[str, bool]]:
    """The fields of every model on the wire, and whether each is required."""
    models = [
        member
        for module in (contracts, guarantees, reconciliation)
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, BaseModel) and member.__module__ == module.__name__
    ]
    return {
        model.__name__: {name: field.is_required() for name, field in model.model_fields.items()}
        for model in sorted(models, key=lambda model: model.__name__)
    }


def released() -> dict[str, dict[str, bool]]:
    """What has been released."""
    snapshot: dict[str, Any] = json.loads(SNAPSHOT.read_text())
    return snapshot


def test_no_field_of_a_payload_was_lost_or_became_required() -> None:
    now = fields_now()
    for model, fields in released().items():
        for name, was_required in fields.items():
            assert name in now[model], f"{model}.{name} is gone"
            assert was_required or not now[model][name], f"{model}.{name} became required"


def test_what_a_payload_gained_has_a_default_and_stands_in_the_snapshot() -> None:
    known = released()
    for model, fields in fields_now().items():
        if model in known:
            gained = fields.keys() - known[model].keys()
            assert not [name for name in gained if fields[name]], f"{model} needs defaults"
        assert known.get(model, {}).keys() >= fields.keys(), f"add to {SNAPSHOT.name}: {model}"
