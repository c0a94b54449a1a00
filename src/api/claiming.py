"""Claiming by kind of operation: a saga's claim is the beginning, a local operation's is all."""

from typing import assert_never

from api.problems import Problem, crowded, in_progress
from api.service import Service
from ledger.claims import Claim, Intent
from ledger.local import Crowded, StillProcessing
from operations.declaration import LocalOperation, Operation, Request, SagaOperation
from operations.receipts import operation_path


async def claim_by_kind(
    intent: Intent, request: Request, *, operation: Operation, service: Service
) -> Claim:
    """Claim the key, or find who was first. The claim of a local operation comes with its receipt:
    its whole effect is made with it.

    Raises Problem (in-progress, storage-unavailable) when a bounded wait was in vain, and
    StorageUnavailable.
    """
    match operation:
        case SagaOperation():
            return await service.ledger.claims.claim(intent, now=service.now())
        case LocalOperation():
            done = await service.ledger.local.perform(
                intent, request, operation=operation, now=service.now()
            )
            if isinstance(done, Claim):
                return done
            raise _in_vain(done, intent)
        case _:
            assert_never(operation)


def _in_vain(wait: StillProcessing | Crowded, intent: Intent) -> Problem:
    match wait:
        case StillProcessing():
            return in_progress(operation_path(operation=intent.operation, key=intent.key))
        case Crowded():
            return crowded()
        case _:
            assert_never(wait)
