"""What a run tells people: search attributes for lists, and a table of its steps for the UI."""

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from operations.contracts import CancelRequest, Decision, EffectRecord, Progress, Run
from operations.search import OPERATION_STATE
from operations.states import ClaimState, Outcome
from workflows.journal import Journal

_STATE = SearchAttributeKey.for_keyword(OPERATION_STATE)


class Teller:
    """Tells where one operation stands."""

    def __init__(self, run: Run, journal: Journal) -> None:
        """It begins as accepted, and nobody is told."""
        self._run = run
        self._journal = journal
        self._told: str = ClaimState.ACCEPTED.value
        self._has_told = False

    def progress(
        self,
        state: ClaimState,
        rows: tuple[EffectRecord, ...],
        decision: Decision | None,
        cancel: CancelRequest | None,
    ) -> Progress:
        """What the ledger is told."""
        return Progress(
            claim_id=self._run.claim_id,
            tenant=self._run.tenant,
            state=state,
            effects=rows,
            decision=decision,
            cancel=cancel,
            first_run_id=workflow.info().first_execution_run_id,
        )

    def tell(self, state: ClaimState | Outcome) -> None:
        """Tell where the operation stands, to whoever opens the run; and to lists, unless all has
        gone well: telling them that costs Temporal an eighth of all its work for a run."""
        all_is_well = state is Outcome.SUCCEEDED and not self._has_told
        if state.value != self._told and not (all_is_well and self._run.tells_trouble_only):
            self._has_told = True
            self._told = state.value
            workflow.upsert_search_attributes(  # pyright: ignore[reportUnknownMemberType]
                [_STATE.value_set(state.value)]
            )
        workflow.set_current_details(self._table(state))

    def _table(self, state: ClaimState | Outcome) -> str:
        """The run's effects as a Markdown table."""
        lines = [
            f"**{state.value}**",
            "",
            "| step | call | guarantee | state | reference | sends | remark |",
            "|---|---|---|---|---|---|---|",
        ]
        for effect in self._journal.all():
            cells = (
                effect.step,
                f"{effect.action} at {effect.profile.provider}",
                effect.profile.guarantee.value,
                effect.state.value,
                effect.provider_reference or "",
                str(effect.sends),
                effect.reason or "",
            )
            lines.append("| " + " | ".join(_cell(text) for text in cells) + " |")
        return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:200]
