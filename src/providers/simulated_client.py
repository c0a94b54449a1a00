"""What the clients of the simulated providers share: frozen bodies, records, pages.

Each provider's own file says what differs: its paths, its fields, its answers, its profile.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from operations.errors import EffectUnknown, Unavailable
from operations.guarantees import Guarantee, ProviderProfile
from providers.contract import ProviderRecord, RecordPage
from providers.http_calls import Documented, HttpCalls

_WRITE_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


@dataclass(frozen=True)
class Field:
    """How one member of our request is written on the wire."""

    name: str
    """The provider's name for it."""
    kind: type[int] | type[str] = str
    optional: bool = False
    write: Callable[[str], str] | None = None
    """How a text is written, where it is not written as it is."""


@dataclass(frozen=True)
class Call:
    """One action of a provider."""

    path: str
    """POST performs it; GET with `?reference=` looks it up."""
    fields: Mapping[str, Field]
    """Our name of each member → the provider's."""
    target: str | None = None
    """The member of its record that names what it undoes."""


@dataclass(frozen=True)
class Interface:
    """A provider's documented interface."""

    calls: Mapping[str, Call]
    documented: Documented
    records_path: str | None = None


class SimulatedClient:
    """A `providers.contract.Provider` for an interface of the simulated kind."""

    def __init__(
        self,
        base_url: str,
        *,
        interface: Interface,
        profile: ProviderProfile,
        token: str | None = None,
    ) -> None:
        """Talk to the provider at `base_url`, and promise what `profile` says."""
        self._interface = interface
        self._profile = profile
        self._http = HttpCalls(base_url, profile=profile, token=token)

    @property
    def profile(self) -> ProviderProfile:
        """What this provider promises."""
        return self._profile

    def freeze(self, action: str, request: Mapping[str, Any]) -> bytes:
        """The bytes to send: sorted members, no white space, UTF-8.

        `request` holds the action's members, `reference` (our derived key) among them.
        Raises ValueError for an unknown action, a missing, unknown or mistyped member.
        """
        fields = self._call(action).fields
        if unknown := sorted(request.keys() - fields.keys()):
            raise ValueError(f"{action} has no member {', '.join(unknown)}")
        document: dict[str, Any] = {}
        for ours, field in fields.items():
            value: Any = request.get(ours)
            if value is None and field.optional:
                continue
            if type(value) is not field.kind:  # exactly: True is no amount
                raise ValueError(f"{action} needs {ours} of type {field.kind.__name__}")
            document[field.name] = value if field.write is None else field.write(str(value))
        return _WRITE_JSON(document).encode()

    async def perform(self, action: str, *, key: str, body: bytes) -> ProviderRecord:
        """Send `body` once. Raises Declined, Unavailable, EffectUnknown, KeyMismatch."""
        call = self._call(action)
        keyed = self._profile.guarantee is Guarantee.KEYED
        document = await self._http.send(
            call.path,
            body=body,
            headers={"Idempotency-Key": key} if keyed else {},
            documented=self._interface.documented,
        )
        try:
            return self._record(document)
        except (ValidationError, KeyError, TypeError, AttributeError) as error:
            raise EffectUnknown(
                f"{self._profile.provider} answered with a record we cannot read"
            ) from error

    async def look_up(self, action: str, *, key: str) -> tuple[ProviderRecord, ...]:
        """The records under our key, oldest first. Raises Unavailable."""
        call = self._call(action)
        if not self._profile.can_look_up:
            raise Unavailable(f"{self._profile.provider} keeps no records we can read")
        page = await self._page(call.path, {"reference": key})
        return page.records

    async def list_records(
        self, *, since: datetime, until: datetime, cursor: str | None, limit: int
    ) -> RecordPage:
        """Records created in [since, until), oldest first, at most 1000 a page.

        Raises Unavailable.
        """
        path = self._interface.records_path
        if path is None or not self._profile.can_look_up:
            raise Unavailable(f"{self._profile.provider} keeps no records we can read")
        query = {"since": since.isoformat(), "until": until.isoformat(), "limit": str(limit)}
        return await self._page(path, query if cursor is None else {**query, "cursor": cursor})

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _page(self, path: str, query: Mapping[str, str]) -> RecordPage:
        document = await self._http.fetch(path, query=query)
        try:
            return RecordPage(
                records=tuple(self._record(record) for record in document["records"]),
                next_cursor=document.get("next_cursor"),
            )
        except (ValidationError, KeyError, TypeError, AttributeError) as error:
            raise Unavailable(f"{self._profile.provider} listed records we cannot read") from error

    def _call(self, action: str) -> Call:
        try:
            return self._interface.calls[action]
        except KeyError:
            raise ValueError(f"{self._profile.provider} has no action {action}") from None

    def _record(self, document: Any) -> ProviderRecord:
        action = document["type"]
        target = self._interface.calls[action].target
        return ProviderRecord(
            id=document["id"],
            action=action,
            reference=document.get("reference"),
            amount_minor=document.get("amount"),
            currency=document.get("currency"),
            target=document.get(target) if target else None,
            state=document["state"],
            created_at=document["created_at"],
        )
