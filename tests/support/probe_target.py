"""A small service with idempotency keys, in memory: right, or wrong in exactly one chosen way."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum, auto
from typing import Any, cast
from urllib.parse import unquote

Scope = dict[str, Any]
Receive = Callable[[], Coroutine[Any, Any, dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

TENANTS = {"Bearer acme-key": "acme", "Bearer globex-key": "globex"}
CURRENCIES = ("EUR", "USD")
# Shorter than the pause before a client's first retry, so that only a race is simultaneous.
SIMULTANEOUS_SECONDS = 0.018


class Defect(StrEnum):
    """One way in which a service can be wrong."""

    THIRD_SIMULTANEOUS_REQUEST_RUNS = auto()
    LATE_DUPLICATE_GETS_ITS_OWN_ANSWER = auto()
    NO_RETRY_AFTER = auto()
    DISCONNECT_DROPS_THE_RECORD = auto()
    FORGETS_AFTER_TWO_REPLAYS = auto()
    REPLAYED_STATUS_IS_200 = auto()
    REPLAYED_BYTES_ARE_ENCODED_ANEW = auto()
    REPLAY_LOSES_LOCATION = auto()
    REPLAY_IS_NOT_MARKED = auto()
    TENANTS_SHARE_KEYS = auto()
    REPLAYS_WITHOUT_CREDENTIALS = auto()
    STATUS_IS_NOT_FOUND = auto()
    STATUS_IS_FOR_EVERYBODY = auto()
    CURRENCY_IS_NOT_COMPARED = auto()
    OTHER_CURRENCY_RUNS = auto()
    REFUSAL_REPLACES_THE_RECORD = auto()
    ERRORS_MATCH_ANY_CONTENT = auto()
    VALIDATION_ERRORS_ARE_STORED = auto()
    MEMBER_ORDER_MATTERS = auto()
    WHITE_SPACE_MATTERS = auto()
    NUMBER_FORM_RUNS_AGAIN = auto()
    NUMBERS_ARE_FLOATS = auto()
    DUPLICATE_MEMBERS_ARE_ACCEPTED = auto()
    QUERY_IS_IGNORED = auto()
    KEY_IS_OPTIONAL = auto()
    MISSING_KEY_IS_422 = auto()
    EMPTY_KEY_IS_A_KEY = auto()
    QUOTES_BELONG_TO_THE_KEY = auto()
    PARAMETERS_BELONG_TO_THE_KEY = auto()
    CASE_IS_FOLDED = auto()
    KEYS_ARE_SHORT = auto()
    KEYS_ARE_TRUNCATED = auto()
    ODD_BYTES_ARE_REPLACED = auto()
    LINES_ARE_JOINED = auto()
    ERRORS_ARE_PLAIN_JSON = auto()


@dataclass(frozen=True)
class Reply:
    """What goes back to the client."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


class RefusedError(Exception):
    """Nothing runs; `reply` says why."""

    def __init__(self, status: int, title: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(title)
        body = json.dumps({"type": "about:blank", "title": title, "status": status}).encode()
        kind = (b"content-type", b"application/problem+json")
        self.reply = Reply(status, body, (kind, *headers))


@dataclass
class Record:
    """What is remembered of one key."""

    fingerprint: object
    started: float
    reply: Reply | None = None
    duplicates: int = 0
    replays: int = 0


@dataclass
class ProbeTarget:
    """An ASGI application: POST …/charges, GET …/charges, GET …/charges/{key}."""

    defect: Defect | None = None
    run_seconds: float = 0.03
    posts_before_limit: int | None = None
    """After so many requests, every further one is answered 429."""
    effects: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    records: dict[tuple[str, str], Record] = field(default_factory=dict[tuple[str, str], Record])
    tasks: set["asyncio.Task[Reply]"] = field(default_factory=set["asyncio.Task[Reply]"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            reply = await self._reply(scope, receive)
        except RefusedError as refusal:
            reply = refusal.reply
            if self.defect is Defect.ERRORS_ARE_PLAIN_JSON:
                kind = (b"content-type", b"application/json")
                reply = Reply(reply.status, reply.body, (kind, *reply.headers[1:]))
        await send(
            {"type": "http.response.start", "status": reply.status, "headers": list(reply.headers)}
        )
        await send({"type": "http.response.body", "body": reply.body})

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
        tenant = TENANTS.get(_header(scope, b"authorization").decode())
        path: str = scope["path"]
        if scope["method"] == "GET" and path.endswith("/charges"):
            return Reply(200, json.dumps(self.effects).encode())
        if scope["method"] == "GET":
            return self._status(tenant, unquote(path.rpartition("/")[2]))
        body = await _read(receive)
        if self.posts_before_limit is not None:
            self.posts_before_limit -= 1
            if self.posts_before_limit < 0:
                raise RefusedError(429, "too many requests", (b"retry-after", b"0"))
        key = self._key(scope)
        if tenant is None:
            return self._without_credentials(key)
        if key is None:
            return await self._run(Record(None, 0.0), self._valid(self._parsed(body)))
        return await self._claimed(scope, receive, tenant=tenant, key=key, body=body)

    async def _claimed(
        self, scope: Scope, receive: Receive, *, tenant: str, key: str, body: bytes
    ) -> Reply:
        place = (tenant, key)
        if self.defect is Defect.TENANTS_SHARE_KEYS:
            place = next((known for known in self.records if known[1] == key), place)
        content = self._parsed(body)
        fingerprint = self._fingerprint(content, body, scope["query_string"])
        record = self.records.get(place)
        if record is not None and self._runs_anyway(content, body):
            record = None
        if record is not None:
            return await self._again(place, record, fingerprint, content)
        try:
            valid = self._valid(content)
        except RefusedError as refusal:
            if self.defect is Defect.VALIDATION_ERRORS_ARE_STORED:
                self.records[place] = Record(None, 0.0, refusal.reply)
            raise
        record = self.records[place] = Record(fingerprint, _now())
        task = asyncio.create_task(self._run(record, valid))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        if self.defect is Defect.DISCONNECT_DROPS_THE_RECORD:
            gone = asyncio.create_task(receive())
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                del self.records[place]
            gone.cancel()
        return await asyncio.shield(task)

    async def _run(self, record: Record, content: dict[str, Any]) -> Reply:
        await asyncio.sleep(self.run_seconds)
        kind = (b"content-type", b"application/json")
        if content.get("card") == "declined":
            body = json.dumps({"type": "about:blank", "title": "declined", "status": 402}).encode()
            record.reply = Reply(402, body, ((b"content-type", b"application/problem+json"),))
            if self.defect is Defect.ERRORS_MATCH_ANY_CONTENT:
                record.fingerprint = None
            return record.reply
        identifier = f"ch_{len(self.effects)}"
        self.effects.append({"id": identifier, "description": content["description"]})
        body = json.dumps({"id": identifier, "amount": int(content["amount"])}).encode()
        location = (b"location", f"/charges/{identifier}".encode())
        record.reply = Reply(201, body, (kind, location))
        return record.reply

    async def _again(
        self, place: tuple[str, str], record: Record, fingerprint: object, content: dict[str, Any]
    ) -> Reply:
        if record.fingerprint is not None and record.fingerprint != fingerprint:
            if self.defect is Defect.REFUSAL_REPLACES_THE_RECORD:
                record.fingerprint = fingerprint
            raise RefusedError(409, "the key was used for other content")
        if record.reply is None:
            return await self._while_running(record, content)
        record.replays += 1
        if self.defect is Defect.FORGETS_AFTER_TWO_REPLAYS and record.replays == 2:
            del self.records[place]
        return self._replayed(record.reply)

    async def _while_running(self, record: Record, content: dict[str, Any]) -> Reply:
        record.duplicates += 1
        age_seconds = _now() - record.started
        late = age_seconds > self.run_seconds / 3
        if self.defect is Defect.LATE_DUPLICATE_GETS_ITS_OWN_ANSWER and late:
            return Reply(201, b'{"id": "ch_soon"}')
        third = record.duplicates == 2 and age_seconds < SIMULTANEOUS_SECONDS
        if self.defect is Defect.THIRD_SIMULTANEOUS_REQUEST_RUNS and third:
            return await self._run(Record(None, 0.0), content)
        if self.defect is Defect.NO_RETRY_AFTER:
            raise RefusedError(409, "still running")
        raise RefusedError(409, "still running", (b"retry-after", b"1"))

    def _replayed(self, reply: Reply) -> Reply:
        status, body, headers = reply.status, reply.body, reply.headers
        match self.defect:
            case Defect.REPLAYED_STATUS_IS_200:
                status = 200 if status < 300 else status
            case Defect.REPLAYED_BYTES_ARE_ENCODED_ANEW:
                body = json.dumps(json.loads(body), separators=(",", ":")).encode()
            case Defect.REPLAY_LOSES_LOCATION:
                headers = headers[:1]
            case Defect.REPLAY_IS_NOT_MARKED:
                return reply
            case _:
                pass
        return Reply(status, body, (*headers, (b"idempotent-replayed", b"true")))

    def _runs_anyway(self, content: dict[str, Any], body: bytes) -> bool:
        if self.defect is Defect.OTHER_CURRENCY_RUNS:
            return content.get("currency") == "USD"
        return self.defect is Defect.NUMBER_FORM_RUNS_AGAIN and b".0" in body

    def _without_credentials(self, key: str | None) -> Reply:
        if self.defect is Defect.REPLAYS_WITHOUT_CREDENTIALS:
            for (_, known), record in self.records.items():
                if known == key and record.reply is not None:
                    return self._replayed(record.reply)
        raise RefusedError(401, "credentials are missing")

    def _status(self, tenant: str | None, key: str) -> Reply:
        for (owner, known), record in self.records.items():
            mine = owner == tenant or self.defect is Defect.STATUS_IS_FOR_EVERYBODY
            if known == key and mine and record.reply is not None:
                if self.defect is Defect.STATUS_IS_NOT_FOUND:
                    break
                return Reply(200, b'{"state": "done"}')
        raise RefusedError(404, "not found")

    def _key(self, scope: Scope) -> str | None:
        lines = [value for name, value in scope["headers"] if name == b"idempotency-key"]
        if not lines:
            if self.defect is Defect.KEY_IS_OPTIONAL:
                return None
            status = 422 if self.defect is Defect.MISSING_KEY_IS_422 else 400
            raise RefusedError(status, "the key is missing")
        if len(lines) > 1 and self.defect is not Defect.LINES_ARE_JOINED:
            raise RefusedError(400, "more than one key")
        return self._decoded(b", ".join(lines))

    def _decoded(self, raw: bytes) -> str:
        if self.defect is Defect.ODD_BYTES_ARE_REPLACED:
            raw = raw.decode("ascii", "replace").replace("\ufffd", "?").encode()
        if self.defect is not Defect.PARAMETERS_BELONG_TO_THE_KEY and b";" in raw:
            raise RefusedError(400, "a key has no parameters")
        key = raw.decode("latin-1")
        quoted = len(key) > 1 and key[0] == key[-1] == '"'
        if quoted and self.defect is not Defect.QUOTES_BELONG_TO_THE_KEY:
            key = key[1:-1]
        if self.defect is Defect.CASE_IS_FOLDED:
            key = key.lower()
        if self.defect is Defect.KEYS_ARE_TRUNCATED:
            key = key[:255]
        if self.defect is Defect.EMPTY_KEY_IS_A_KEY and not key:
            return key
        longest = 64 if self.defect is Defect.KEYS_ARE_SHORT else 255
        if not 1 <= len(key) <= longest or not all(" " <= character <= "~" for character in key):
            raise RefusedError(400, "the key is malformed")
        return key

    def _parsed(self, body: bytes) -> dict[str, Any]:
        def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            names = [name for name, _ in pairs]
            accepted = self.defect is Defect.DUPLICATE_MEMBERS_ARE_ACCEPTED
            if len(set(names)) < len(names) and not accepted:
                raise RefusedError(400, "a member is named twice")
            return dict(pairs)

        number = float if self.defect is Defect.NUMBERS_ARE_FLOATS else Decimal
        try:
            return json.loads(
                body, parse_int=number, parse_float=number, object_pairs_hook=no_duplicates
            )
        except ValueError as error:
            raise RefusedError(400, "the body is not JSON") from error

    def _valid(self, content: dict[str, Any]) -> dict[str, Any]:
        amount = content.get("amount")
        whole = isinstance(amount, (Decimal, float)) and amount == int(amount) > 0
        if not whole or content.get("currency") not in CURRENCIES:
            raise RefusedError(422, "amount or currency is wrong")
        return content

    def _fingerprint(self, content: dict[str, Any], body: bytes, query: bytes) -> object:
        members = cast("list[tuple[str, object]]", list(content.items()))
        if self.defect is Defect.CURRENCY_IS_NOT_COMPARED:
            members = [member for member in members if member[0] != "currency"]
        if self.defect is not Defect.MEMBER_ORDER_MATTERS:
            members.sort()
        line_ends = body.count(b"\n") if self.defect is Defect.WHITE_SPACE_MATTERS else 0
        return members, line_ends, b"" if self.defect is Defect.QUERY_IS_IGNORED else query


@dataclass
class ProbeTargets:
    """One ASGI application for all targets: the first part of a path is its name."""

    targets: dict[str, ProbeTarget] = field(default_factory=dict[str, ProbeTarget])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to its target, made at its first request."""
        name: str = scope["path"].split("/")[1]
        if name not in self.targets:
            self.targets[name] = _target(name)
        await self.targets[name](scope, receive, send)


def _target(name: str) -> ProbeTarget:
    match name:
        case "right":
            return ProbeTarget()
        case "limited":
            return ProbeTarget(posts_before_limit=30)
        case Defect.LATE_DUPLICATE_GETS_ITS_OWN_ANSWER:
            return ProbeTarget(Defect(name), run_seconds=0.2)
        case _:
            return ProbeTarget(Defect(name))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for known, value in scope["headers"] if known == name), b"")


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RefusedError(400, "the client is gone")
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return body
