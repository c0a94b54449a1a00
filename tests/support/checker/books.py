"""Evidence, indexed: which effect belongs to which intent, and what is left of it."""

from support.checker.evidence import ClaimRow, Evidence, Expected, Record


class Books:
    """Look-ups over one body of evidence."""

    def __init__(self, evidence: Evidence) -> None:
        """Index it once."""
        self.evidence = evidence
        self.claims: dict[int, ClaimRow] = {claim.id: claim for claim in evidence.claims}
        self.by_intent = {claim.intent: claim for claim in evidence.claims}
        self.expected: dict[str | None, Expected] = {e.key: e for e in evidence.expected}
        self._records: dict[tuple[int, str, bool], list[Record]] = {}
        for record in evidence.records:
            found = self.expected.get(record.reference)
            if found is not None:
                place = (found.claim_id, found.step, found.purpose == "action")
                self._records.setdefault(place, []).append(record)

    def name(self, claim_id: int) -> str:
        """An intent, for people."""
        claim = self.claims.get(claim_id)
        return f"claim {claim_id}" if claim is None else "/".join(claim.intent)

    def steps(self) -> dict[tuple[int, str], Expected]:
        """What every claim may cause, by claim and step."""
        return {
            (expected.claim_id, expected.step): expected
            for expected in self.evidence.expected
            if expected.purpose == "action"
        }

    def net(self, claim_id: int, step: str) -> int:
        """How often a step's effect stands in the provider's books: done, less undone."""
        done = self._records.get((claim_id, step, True), [])
        undone = self._records.get((claim_id, step, False), [])
        return len(done) - len(undone)
