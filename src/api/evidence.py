"""Telling a run what a provider's message has proved. After the commit, so it can be lost: then the
inbox's sweep does it."""

import structlog

from api.service import Executor, ExecutorUnavailable, UpdateRefused
from ledger.inbox import Proof
from ledger.ledger import Ledger
from operations.contracts import Decision
from operations.states import Verdict

REFUSALS_MAX = 12
"""A run refuses while its request is still under way, or because it knows already. The pauses of so
many tries add up to six minutes, far more than a request takes; and the effect's row, which every
later send and every recovered run reads, says the same."""

_log = structlog.get_logger(__name__)


async def tell_run(proof: Proof, *, ledger: Ledger, executor: Executor) -> bool:
    """Tell the run, once. True when there is nothing left to tell. Raises StorageUnavailable."""
    found = await ledger.claims.read_many([proof.claim_id])
    if not found or not found[0].state.is_open:
        await ledger.inbox.finish(proof.message_id)
        return True
    try:
        await executor.resolve(found[0], decision_of(proof))
    except (UpdateRefused, ExecutorUnavailable) as error:
        patient = isinstance(error, ExecutorUnavailable) or proof.checks < REFUSALS_MAX
        _log.info("proof.not_taken", claim=proof.claim_id, step=proof.step, reason=str(error))
        if patient:
            return False
    await ledger.inbox.finish(proof.message_id)
    return True


def decision_of(proof: Proof) -> Decision:
    """The verdict that the message amounts to."""
    return Decision(
        step=proof.step,
        purpose=proof.purpose,
        verdict=Verdict.CONFIRMED,
        provider_reference=proof.provider_reference,
        evidence=proof.event,
        decided_by=f"webhook:{proof.provider}",
        about=proof.key,
    )
