"""How a class becomes the workflow of an operation: Temporal's plumbing, written once."""

from collections.abc import Callable
from typing import Any, TypeVar

from temporalio import workflow

from operations.contracts import Run, RunEnd
from operations.declaration import SagaOperation
from workflows.operation_run import OperationRun

W = TypeVar("W", bound=OperationRun[Any])


def runs(operation: SagaOperation) -> Callable[[type[W]], type[W]]:
    """Make the decorated class the workflow that runs `operation`, under the operation's name.

    Temporal wants the run method and the initializer on the class itself, not on a base: this puts
    them there, so that a workflow's file holds the business's steps and nothing else.
    """

    def declare(cls: type[W]) -> type[W]:
        def __init__(self: W, run: Run) -> None:  # noqa: N807 - it becomes the class's own
            OperationRun.__init__(self, run)  # pyright: ignore[reportUnknownMemberType]

        async def run(self: W, _run: Run) -> RunEnd:
            return await self.settle()

        # Temporal tells by these names whether a method is the class's own, and takes every
        # annotated parameter for an argument of the run.
        for method in (__init__, run):
            method.__annotations__.pop("self")
            method.__module__ = cls.__module__
            method.__qualname__ = f"{cls.__name__}.{method.__name__}"
        run.__doc__ = "Run to the receipt."
        cls.operation = operation
        setattr(cls, "__init__", workflow.init(__init__))  # noqa: B010 - no name pyright would take
        setattr(cls, "run", workflow.run(run))  # noqa: B010 - as above
        return workflow.defn(name=operation.name)(cls)

    return declare
