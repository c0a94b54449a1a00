"""The ledger as its users see it: one pool, and a room for each role."""

from dataclasses import dataclass

from ledger.access import Access
from ledger.accounts import Accounts
from ledger.announcements import Announcer
from ledger.claims import Claims
from ledger.contradictions import Contradictions
from ledger.database import Database
from ledger.endpoints import Endpoints
from ledger.housekeeping import Housekeepings
from ledger.inbox import Inbox
from ledger.local import LocalOperations
from ledger.outbox import Outbox
from ledger.progress import Progresses
from ledger.reading import Readings
from ledger.reconciliation import Reconciliations
from ledger.relay import Relays
from ledger.sends import Sends
from ledger.verdicts import Verdicts


@dataclass(frozen=True, slots=True)
class Ledger:
    """Everything that stands in Postgres. One method is one transaction."""

    database: Database
    claims: Claims
    sends: Sends
    progress: Progresses
    relay: Relays
    reading: Readings
    housekeeping: Housekeepings
    verdicts: Verdicts
    local: LocalOperations
    accounts: Accounts
    reconciliation: Reconciliations
    access: Access
    inbox: Inbox
    contradictions: Contradictions
    outbox: Outbox
    endpoints: Endpoints
    announcer: Announcer

    @classmethod
    def on(cls, database: Database) -> "Ledger":
        """The ledger in `database`."""
        return cls(
            database=database,
            claims=Claims(database),
            sends=Sends(database),
            progress=Progresses(database),
            relay=Relays(database),
            reading=Readings(database),
            housekeeping=Housekeepings(database),
            verdicts=Verdicts(database),
            local=LocalOperations(database),
            accounts=Accounts(database),
            reconciliation=Reconciliations(database),
            access=Access(database),
            inbox=Inbox(database),
            contradictions=Contradictions(database),
            outbox=Outbox(database),
            endpoints=Endpoints(database),
            announcer=Announcer(database),
        )

    async def close(self) -> None:
        """Tell what is still to be told, and close the pool."""
        await self.announcer.close()
        await self.database.close()
