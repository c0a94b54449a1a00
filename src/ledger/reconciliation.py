"""The room of the ledger that reconciliation works in."""

from ledger.database import Database
from ledger.reconciliation_actions import ReconciliationActions
from ledger.reconciliation_findings import ReconciliationFindings
from ledger.reconciliation_pages import ReconciliationPages
from ledger.reconciliation_runs import ReconciliationRuns


class Reconciliations:
    """Runs, their pages, what they found, and what was done about it."""

    def __init__(self, database: Database) -> None:
        """Use the pool of `database`."""
        self.runs = ReconciliationRuns(database)
        self.pages = ReconciliationPages(database)
        self.findings = ReconciliationFindings(database)
        self.actions = ReconciliationActions(database)
