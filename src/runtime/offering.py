"""What this deployment offers: the operations we ship, and those of the team that runs it.

A module of the team's own package, named in `TALLYSTICK_EXTRA_OPERATIONS`, has a tuple `WORKFLOWS`
of classes that `workflows.runs` made. The API and every worker are given the same modules.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from operations.declaration import Operation, by_name
from operations.registry import OPERATIONS
from workflows.operation_run import OperationRun
from workflows.registry import OPERATION_WORKFLOWS, check_registries


@dataclass(frozen=True, slots=True)
class Offering:
    """Operations by name, and the workflows that run the sagas among them."""

    operations: Mapping[str, Operation]
    workflows: tuple[type[OperationRun[Any]], ...]


@lru_cache(maxsize=8)
def offering_of(modules: tuple[str, ...]) -> Offering:
    """What we ship, and what `modules` add to it.

    Raises ValueError for a module without `WORKFLOWS`, and for a name that is taken;
    ModuleNotFoundError for one that is not installed.
    """
    added = tuple(workflow for module in modules for workflow in _workflows_in(module))
    operations = by_name(*OPERATIONS.values(), *(workflow.operation for workflow in added))
    workflows = (*OPERATION_WORKFLOWS, *added)
    check_registries(operations, workflows)
    return Offering(MappingProxyType(operations), workflows)


def _workflows_in(module: str) -> tuple[type[OperationRun[Any]], ...]:
    found: tuple[type[OperationRun[Any]], ...] = getattr(
        importlib.import_module(module), "WORKFLOWS", ()
    )
    if not found:
        raise ValueError(f"TALLYSTICK_EXTRA_OPERATIONS: {module} has no WORKFLOWS")
    return found
