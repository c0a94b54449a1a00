"""Reading what Stripe has: lists of objects by their creation, never the search.

Stripe's search shows new objects with a delay and is not meant for reading what was just written
(docs.stripe.com/search), so "not found" there proves nothing (hazard 1). A list holds everything.

Stripe lists newest first, a hundred objects a page at most, and continues after a given object
(docs.stripe.com/api/pagination). Our records go oldest first. So a window is read in slices short
enough for one page of each list: a slice that is too full is halved, down to one second, which is
as exact as Stripe's creation times are.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from operations.errors import Unavailable
from providers.contract import ProviderRecord, RecordPage
from providers.http_calls import retry_after_seconds
from providers.stripe_answers import STILL_MOVING_SECONDS, Effect, effect_of
from providers.stripe_objects import ChargeApi, record_of, reference_in
from providers.stripe_wire import Reply, StripeWire

PAGE_OBJECTS = 100
"""The most that Stripe lists at once."""

PAGES_MAX = 100
"""Of one list: ten thousand objects, about half a minute of reading."""

REFUNDS_PATH = "/v1/refunds"


@dataclass(frozen=True, order=True)
class Position:
    """How far a reader of records is: everything up to and with this one has been returned."""

    second: int
    id: str = ""

    def __str__(self) -> str:
        """As a cursor: the creation time in seconds, a colon, the object's identifier."""
        return f"{self.second}:{self.id}"

    @classmethod
    def read(cls, cursor: str) -> "Position":
        """Raises ValueError for what is no cursor of ours."""
        second, colon, identifier = cursor.partition(":")
        if not colon:
            raise ValueError("this is no cursor of stripe's books")
        return cls(int(second), identifier)


class StripeBooks:
    """The charges and refunds of one account."""

    def __init__(self, wire: StripeWire, *, api: ChargeApi, filters_by_creation: bool) -> None:
        """Read over `wire`. A server that cannot filter by creation is read in full, every time."""
        self._wire = wire
        self._api = api
        self._filters = filters_by_creation
        self._charges_path = f"/v1/{api}"

    async def read_one(self, path: str, identifier: str) -> dict[str, Any]:
        """The present state of an object. Raises Unavailable."""
        return await self._read(f"{path}/{identifier}", {})

    async def with_reference(
        self, action: str, reference: str, *, since: datetime
    ) -> tuple[ProviderRecord, ...]:
        """The effects with exactly this reference that were created from `since` on.

        Raises Unavailable, also when there is more than can be read (a part proves no absence), and
        while one of them is not decided (it is neither an effect nor absent).
        """
        path = REFUNDS_PATH if action == "refund" else self._charges_path
        window = {"created[gte]": str(math.floor(since.timestamp()))} if self._filters else {}
        objects, complete = await self._list(path, window, pages_max=PAGES_MAX)
        if not complete:
            raise Unavailable(f"stripe has more than {PAGE_OBJECTS * PAGES_MAX} objects to look at")
        ours = [found for found in objects if reference_in(found) == reference]
        if any(effect_of(found) in {Effect.MOVING, Effect.UNCLEAR} for found in ours):
            raise Unavailable(
                "stripe has not decided about it", retry_after_seconds=STILL_MOVING_SECONDS
            )
        return tuple(sorted(self._records(ours), key=_position))

    async def between(
        self, since: datetime, until: datetime, *, cursor: str | None, limit: int
    ) -> RecordPage:
        """Charges and refunds created in [since, until), merged, oldest first, `limit` at most.

        A page may hold fewer than there are; `next_cursor` says whether it goes on.
        Raises Unavailable, and ValueError for a foreign cursor.
        """
        start = Position(math.ceil(since.timestamp())) if cursor is None else Position.read(cursor)
        end = math.ceil(until.timestamp())
        if start.second >= end:
            return RecordPage(records=(), next_cursor=None)
        objects, slice_end = await self._slice(start.second, end)
        records = [
            record
            for record in sorted(self._records(objects), key=_position)
            if start < _position(record) < Position(slice_end)
        ]
        if len(records) > limit:
            page = tuple(records[: max(limit, 1)])
            return RecordPage(records=page, next_cursor=str(_position(page[-1])))
        following = str(Position(slice_end)) if slice_end < end else None
        return RecordPage(records=tuple(records), next_cursor=following)

    async def _slice(self, start: int, end: int) -> tuple[list[dict[str, Any]], int]:
        """Everything created in [start, end') for the longest end' ≤ end that one page holds."""
        while True:
            shortest = end - start <= 1 or not self._filters
            window = {"created[gte]": str(start), "created[lt]": str(end)} if self._filters else {}
            found: list[dict[str, Any]] = []
            complete = True
            for path in (self._charges_path, REFUNDS_PATH):
                objects, complete = await self._list(
                    path, window, pages_max=PAGES_MAX if shortest else 1
                )
                found += objects
                if not complete:
                    break
            if complete:
                return found, end
            if shortest:
                raise Unavailable("stripe has more objects of one second than can be read")
            end = start + (end - start) // 2

    async def _list(
        self, path: str, window: Mapping[str, str], *, pages_max: int
    ) -> tuple[list[dict[str, Any]], bool]:
        """Up to `pages_max` pages, newest first, and whether that was all."""
        objects: list[dict[str, Any]] = []
        query = {**window, "limit": str(PAGE_OBJECTS)}
        for _ in range(pages_max):
            document = await self._read(path, query)
            page = _objects_in(document)
            objects += page
            if not document.get("has_more"):
                return objects, True
            if not page:
                raise Unavailable("stripe lists more, but shows nothing")
            query["starting_after"] = str(page[-1].get("id"))
        return objects, False

    async def _read(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        reply = await self._wire.get(path, query=query)
        if not isinstance(reply, Reply):
            raise Unavailable(f"stripe's books could not be read: {reply.why}")
        if reply.status == 200 and reply.document is not None:
            return reply.document
        raise Unavailable(
            f"stripe's books could not be read: status {reply.status}",
            retry_after_seconds=retry_after_seconds(
                reply.headers.get("Retry-After"), now=datetime.now(UTC)
            ),
        )

    def _records(self, objects: Iterable[dict[str, Any]]) -> Iterator[ProviderRecord]:
        for found in objects:
            if effect_of(found) is not Effect.NONE:
                try:
                    yield record_of(found, api=self._api)
                except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                    raise Unavailable("stripe lists objects that we cannot read") from error


def _objects_in(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    page = document.get("data")
    if not isinstance(page, list):
        raise Unavailable("stripe's list is none")
    found = cast("list[Any]", page)
    return [cast("dict[str, Any]", one) for one in found if isinstance(one, dict)]


def _position(record: ProviderRecord) -> Position:
    return Position(int(record.created_at.timestamp()), record.id)
