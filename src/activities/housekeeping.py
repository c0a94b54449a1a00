"""`housekeeping.*`: what the scheduled housekeeping does."""

from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio import activity

from ledger.ledger import Ledger
from operations.housekeeping import EXPIRE_CLAIMS, Expired


@dataclass(frozen=True, slots=True)
class HousekeepingActivities:
    """The activities of housekeeping."""

    ledger: Ledger

    @activity.defn(name=EXPIRE_CLAIMS)
    async def expire(self, claims_max: int) -> Expired:
        """Clear one batch of claims whose retention is over."""
        count = await self.ledger.housekeeping.expire(now=datetime.now(UTC), limit=claims_max)
        return Expired(claims=count)
