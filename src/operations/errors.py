"""What a failed call tells us about its effect.

    ProviderError
    ├── Declined          definitely refused: nothing happened, and this request never will
    ├── Unavailable       nothing happened: not sent, or documented as not applied; send again later
    └── EffectUnknown     sent, and the answer is lost or says nothing: the effect may exist
        └── KeyMismatch   the provider holds other content under our key: never send again, look up

After a request has left, every doubt is `EffectUnknown`: a read timeout, a reset, a 5xx, a cut-off
answer. Only what the provider documents as "not applied" is `Declined` or `Unavailable`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProviderError(Exception):
    """A call to a provider did not end in a confirmed effect."""

    reason: str
    """One sentence for people: what was seen, without request contents or credentials."""

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class Declined(ProviderError):
    """The provider's definite, documented no. Nothing happened."""

    code: str = "declined"
    """The provider's own machine-readable code, such as `card_declined`."""


@dataclass(frozen=True, slots=True)
class Unavailable(ProviderError):
    """Nothing happened, and the same request may be sent again."""

    retry_after_seconds: float | None = None
    """What the provider asked us to wait, when it did (RFC 9110, section 10.2.3)."""


@dataclass(frozen=True, slots=True)
class EffectUnknown(ProviderError):
    """The request may have been applied. Only the provider's records can tell."""

    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class KeyMismatch(EffectUnknown):
    """The provider knows our key with other content. Sending again cannot help."""
