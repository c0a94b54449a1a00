"""Messages: what a provider or a broker tells us, and what we tell tenants' endpoints. Pure.

Messages in arrive more than once and in any order. A message is told from its repeats by its
business identity, (provider, entity, version), never by a delivery's own number.
"""

from dataclasses import dataclass, field
from enum import StrEnum

TEXT_CHARACTERS_MAX = 255
"""Of every identifier: what the effects they are compared with hold, and more."""


@dataclass(frozen=True, slots=True)
class Message:
    """One fact that somebody outside has stated, at least once.

    Raises ValueError for identifiers that are empty, too long, or not visible ASCII.
    """

    provider: str
    """Who says it: a provider's name, or a broker's topic."""
    entity: str
    """What it is about: the provider's identifier, or any identity of the business."""
    version: str
    """Which state of the entity. The same version is the same fact, however often it arrives."""
    rank: int
    """How far along the entity is: what has a lower rank than the state already known is late, and
    never moves it back. From 0 to 2^62."""
    state: str = ""
    """The sender's own word for it."""
    event: str = ""
    """The sender's number of this event: evidence, not identity."""
    payload: str = field(default="", repr=False)
    """The message as it came."""
    exists: bool = False
    """Whether it says that the effect exists: only such messages settle what is unknown."""
    reference: str | None = None
    """Our derived key, where the sender shows it."""
    provider_reference: str | None = None
    """How the effect is called at the provider, where it is not called `entity`."""
    amount_minor: int | None = None
    currency: str | None = None

    def __post_init__(self) -> None:
        """Check what goes into unique columns."""
        for text in (self.provider, self.entity, self.version):
            if not 1 <= len(text) <= TEXT_CHARACTERS_MAX or not (
                text.isascii() and text.isprintable()
            ):
                raise ValueError("provider, entity and version have 1 to 255 visible characters")
        if not 0 <= self.rank <= 2**62:
            raise ValueError("a rank is between 0 and 2^62")


class Novelty(StrEnum):
    """What a message was to us when it arrived."""

    NEW = "new"
    REPEATED = "repeated"
    """The same version of the same entity is known: nothing was changed."""
    LATE = "late"
    """A later state of the entity is known: it was kept, and moved nothing."""


class Reading(StrEnum):
    """What a kept message has come to mean for our effects."""

    WAITING = "waiting"
    """It is about something we do not know yet: matched when that is recorded."""
    UNRELATED = "unrelated"
    """It settles no effect of ours."""
    KNOWN = "known"
    """The effect was confirmed already."""
    CONFIRMED = "confirmed"
    """It settled an effect whose outcome was not known."""
    DIFFERS = "differs"
    """It is about an effect of ours, with another amount or under another identifier than we know:
    operators find it in the list of contradictions."""
    TOO_LATE = "too_late"
    """The operation has ended without the effect that the message speaks of: as `differs`."""
    NEVER_MATCHED = "never_matched"
    """It waited for as long as messages wait."""


class EventType(StrEnum):
    """What tenants' endpoints are told."""

    ACCEPTED = "operation.accepted"
    PARKED = "operation.parked"
    DONE = "operation.done"
    FINDING_OPENED = "finding.opened"
    PING = "endpoint.ping"
    """The endpoint was set up, or its address changed."""
