"""What a failed call tells us about its effect.

    ProviderError
    ├── Declined          definitely refused: nothing happened, and this request never will
    ├── Unavailable       nothing happened: not sent, or documented as not applied; send again later
    └── EffectUnknown     sent, and the answer is lost or says nothing: the effect may exist
        └── KeyMismatch   the provider holds other content under our key: never send again, look up

After a request has left, every doubt is `EffectUnknown`: a read timeout, a reset, a 5xx, a cut-off
answer. Only what the provider documents as "not applied" is `Declined` or `Unavailable`.
"""


class ProviderError(Exception):
    """A call to a provider did not end in a confirmed effect."""

    def __init__(self, reason: str, *, retry_after_seconds: float | None = None) -> None:
        """Keep `reason`, a sentence for people without request contents or credentials, and how
        long the provider asked us to wait, if it did (RFC 9110, section 10.2.3)."""
        super().__init__(reason)
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


class Declined(ProviderError):
    """The provider's definite, documented no. Nothing happened."""

    def __init__(self, reason: str, *, code: str = "declined") -> None:
        """Keep the provider's machine-readable `code` too, such as `card_declined`."""
        super().__init__(reason)
        self.code = code


class Unavailable(ProviderError):
    """Nothing happened, and the same request may be sent again."""


class EffectUnknown(ProviderError):
    """The request may have been applied. Only the provider's records can tell."""


class KeyMismatch(EffectUnknown):
    """The provider knows our key with other content. Sending again cannot help."""
