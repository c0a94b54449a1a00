"""Stripe, and servers that speak its API: charges and refunds (docs.stripe.com/api).

With idempotency keys it is KEYED, without them QUERYABLE. Either way our reference goes into the
metadata of what we create, and the books are read by creation window and exact metadata.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from operations.errors import EffectUnknown, Unavailable
from operations.guarantees import Guarantee, ProviderProfile
from providers.contract import ProviderRecord, RecordPage
from providers.stripe_answers import (
    STILL_MOVING_SECONDS,
    Effect,
    effect_of,
    failure,
    refusal_in,
)
from providers.stripe_books import REFUNDS_PATH, StripeBooks
from providers.stripe_objects import ChargeApi, charge_form, record_of, refund_form
from providers.stripe_wire import Lost, NotSent, Reply, StripeWire

STRIPE_URL = "https://api.stripe.com"

STRIPE_VERSION = "2025-09-30.clover"
"""The API version that this client was written for; without the header an account's default, which
anybody may change in the dashboard, would decide (docs.stripe.com/api/versioning)."""

PROFILE = ProviderProfile(
    provider="payments",
    guarantee=Guarantee.KEYED,
    can_look_up=True,
    send_timeout_seconds=30.0,  # card networks take seconds; Stripe's own libraries wait for 80
    key_lifetime_seconds=86_400.0,  # "at least 24 hours old" before they may be removed
    key_margin_seconds=3_600.0,  # an hour for queues and for clocks that differ
    lookup_horizon_seconds=120.0,  # 30 s our timeout + 80 s its slowest answer + 10 s reserve
    lookup_interval_seconds=10.0,
)
"""What Stripe promises (docs.stripe.com/api/idempotent_requests)."""

PROFILE_WITHOUT_KEYS = PROFILE.model_copy(update={"guarantee": Guarantee.QUERYABLE})
"""What a server promises that ignores `Idempotency-Key`, but lists what it has."""

LOOKUP_WINDOW_SECONDS = 3 * 86_400.0
"""How far back a look-up reads: a key lives for a day, what cannot be decided is parked after
another, and the third is for whoever asks again."""


class StripePayments:
    """A `providers.contract.Provider`. Actions: `charge` {reference, amount_minor, currency, card,
    description?} and `refund` {reference, charge_id, amount_minor, currency}."""

    def __init__(
        self,
        *,
        api_key: str,
        base_url: str = STRIPE_URL,
        profile: ProviderProfile = PROFILE,
        api: ChargeApi = ChargeApi.PAYMENT_INTENTS,
        filters_by_creation: bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Act with `api_key` for the account that `profile` pins, if it pins one.

        `filters_by_creation` is False for a server whose lists know no `created[gte]`; `transport`
        replaces the network and `now` the clock, for tests. Raises ValueError for a key that cannot
        be sent.
        """
        if not (api_key.isascii() and api_key.isprintable() and " " not in api_key and api_key):
            raise ValueError("the Stripe API key has characters that no key has")
        headers = {"Authorization": f"Bearer {api_key}", "Stripe-Version": STRIPE_VERSION}
        if profile.account != "default":
            headers["Stripe-Account"] = profile.account
        self._profile = profile
        self._api = api
        self._now = now
        self._wire = StripeWire(
            base_url,
            headers=headers,
            timeout_seconds=profile.send_timeout_seconds,
            transport=transport,
        )
        self._books = StripeBooks(self._wire, api=api, filters_by_creation=filters_by_creation)

    @property
    def profile(self) -> ProviderProfile:
        """What this server promises."""
        return self._profile

    def freeze(self, action: str, request: Mapping[str, Any]) -> bytes:
        """The form to send: fields in a fixed order, percent-encoded ASCII.

        Raises ValueError for an unknown action, a missing, unknown or mistyped member, and for an
        amount that Stripe cannot express.
        """
        self._path(action)
        if action == "refund":
            return refund_form(request)
        return charge_form(request, api=self._api)

    async def perform(self, action: str, *, key: str, body: bytes) -> ProviderRecord:
        """Send `body` once, and read the result once more if Stripe is not done with it.

        Raises Declined, Unavailable, EffectUnknown, KeyMismatch.
        """
        path = self._path(action)
        keyed = self._profile.guarantee is Guarantee.KEYED
        try:
            async with asyncio.timeout(self._profile.send_timeout_seconds):
                reply = await self._wire.post(
                    path, body=body, headers={"Idempotency-Key": key} if keyed else {}
                )
                document = await self._present(path, self._accepted(reply, action))
        except TimeoutError as error:
            raise EffectUnknown("stripe did not answer in time") from error
        return self._outcome(document)

    async def look_up(self, action: str, *, key: str) -> tuple[ProviderRecord, ...]:
        """The effects with our key in their metadata, oldest first. What moved no money is none.

        Raises Unavailable.
        """
        self._path(action)
        since = self._now() - timedelta(seconds=LOOKUP_WINDOW_SECONDS)
        try:
            async with asyncio.timeout(self._profile.send_timeout_seconds):
                return await self._books.with_reference(action, key, since=since)
        except TimeoutError as error:
            raise Unavailable("stripe's books could not be read in time") from error

    async def list_records(
        self, *, since: datetime, until: datetime, cursor: str | None, limit: int
    ) -> RecordPage:
        """Charges and refunds created in [since, until), oldest first, at most `limit` a page.

        The cursor is `second:id` of the last record returned, or `second:` where the next slice of
        time begins; it stays valid while new objects appear. Raises Unavailable, ValueError.
        """
        try:
            async with asyncio.timeout(self._profile.send_timeout_seconds):
                return await self._books.between(since, until, cursor=cursor, limit=limit)
        except TimeoutError as error:
            raise Unavailable("stripe's books could not be read in time") from error

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.aclose()

    def _path(self, action: str) -> str:
        match action:
            case "charge":
                return f"/v1/{self._api}"
            case "refund":
                return REFUNDS_PATH
            case _:
                raise ValueError(f"stripe has no action {action}")

    def _accepted(self, reply: Reply | NotSent | Lost, action: str) -> dict[str, Any]:
        match reply:
            case NotSent():
                raise Unavailable(f"stripe could not be reached: {reply.why}")
            case Lost():
                raise EffectUnknown(f"stripe did not answer: {reply.why}")
            case Reply():
                if 200 <= reply.status < 300 and reply.document is not None:
                    return reply.document
                raise failure(reply, action=action, now=self._now())

    async def _present(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        """The object as it is now: a saved answer keeps saying "processing" for a day."""
        if effect_of(document) is not Effect.MOVING:
            return document
        try:
            return await self._books.read_one(path, str(document.get("id")))
        except Unavailable as error:
            raise EffectUnknown(f"stripe was still processing it, and {error.reason}") from error

    def _outcome(self, document: dict[str, Any]) -> ProviderRecord:
        match effect_of(document):
            case Effect.NONE:
                raise refusal_in(document)
            case Effect.MOVING:
                raise EffectUnknown(
                    "stripe is still processing it", retry_after_seconds=STILL_MOVING_SECONDS
                )
            case Effect.UNCLEAR:
                raise EffectUnknown("stripe answered with a state that we do not know")
            case Effect.MOVED:
                try:
                    return record_of(document, api=self._api)
                except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                    raise EffectUnknown("stripe answered with a record we cannot read") from error


def stripe_payments(
    *,
    api_key: str,
    base_url: str = STRIPE_URL,
    account: str | None = None,
    api: ChargeApi = ChargeApi.PAYMENT_INTENTS,
    idempotency_keys: bool = True,
    filters_by_creation: bool = True,
    adjust: Callable[[ProviderProfile], ProviderProfile] = lambda profile: profile,
) -> StripePayments:
    """The client that the settings ask for; `adjust` puts a deployment's figures into its profile.

    The profile pins the account, and as its region whether the key is for live or for test mode:
    each has keys and objects of its own (hazard 11). Raises ValueError for an unusable key.
    """
    promised = PROFILE if idempotency_keys else PROFILE_WITHOUT_KEYS
    pinned = {
        "account": account or "default",
        "region": "test" if "_test_" in api_key else "live",
    }
    return StripePayments(
        api_key=api_key,
        base_url=base_url,
        profile=adjust(promised.model_copy(update=pinned)),
        api=api,
        filters_by_creation=filters_by_creation,
    )
