"""The path of one request through a simulated provider: read, meet faults, commit, answer."""

import asyncio
import hashlib
import math
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from aiohttp import web
from pydantic import ValidationError

from providers.simulated.books import Books, Effect, NewEffect, Pages, StoredAnswer
from providers.simulated.faults import FaultBook, FaultOrder
from providers.simulated.reads import ByReference, Window, cursor_after, record_of
from providers.simulated.service import Action, Draft, Form, Service
from providers.simulated.vocabulary import ACQUIRER_LAG_SECONDS, FaultMode, Temperament
from providers.simulated.wire import Answer, answer, now_us, refusal, reset

LOOK_UP_MAX = 100
"""Records in the answer to a look-up. More than one under a reference is already a finding."""

ANSWERING = frozenset(FaultMode) - {
    FaultMode.REFUSE_CONNECTION,
    FaultMode.LOOKUP_LAG,
    FaultMode.KEY_FORGOTTEN,
}
"""One of these meets a request; a lag and a forgotten key can come on top."""

READING = ANSWERING - {FaultMode.DECLINE}
LAGGING = frozenset({FaultMode.LOOKUP_LAG})
FORGETTING = frozenset({FaultMode.KEY_FORGOTTEN})

INTERNAL = refusal(500, "internal", "something went wrong; the outcome is not known")
NOT_OFFERED = refusal(501, "not_offered", "this acquirer does not offer its records")
KEY_REUSED = refusal(
    409, "idempotency_mismatch", "this key was used with another request; this one is not applied"
)
IN_PROGRESS = refusal(
    409, "in_progress", "the first request under this key has not ended; this one is not applied"
)

Work = Callable[[], Awaitable[Answer]]


@dataclass(frozen=True)
class _Submission:
    """A valid request to perform an action."""

    action: Action
    form: Form
    key: str | None
    fingerprint: bytes
    declined: bool


class Desk:
    """One provider's counter, shared by all its connections."""

    def __init__(
        self,
        service: Service,
        *,
        books: Books,
        faults: FaultBook,
        key_lifetime_seconds: float,
        bearer_token: str | None,
        temperament: Temperament = Temperament.CONSISTENT,
    ) -> None:
        """Serve `service` from `books`."""
        self.service = service
        self.temperament = temperament
        self._books = books
        self._faults = faults
        self._key_lifetime_us = int(key_lifetime_seconds * 1_000_000)
        self._token = bearer_token
        self._in_progress: set[str] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._actions = {action.path: action for action in service.actions}

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, or reset its connection."""
        try:
            return await self._route(request)
        except web.HTTPRequestEntityTooLarge:
            return refusal(413, "invalid_request", "the body is too large").as_response()
        except ValidationError as error:
            return refusal(422, "invalid_request", sentence(error)).as_response()

    async def drop_late(self) -> None:
        """Forget what is still to be committed late."""
        for task in tuple(self._late):
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._token and request.headers.get("Authorization") != f"Bearer {self._token}":
            return refusal(401, "unauthenticated", "the bearer token is wrong").as_response()
        action = self._actions.get(request.path)
        if action is not None and request.method == "POST":
            return await self._perform(request, action)
        if request.method == "GET" and self.service.records_path is not None:
            if action is not None:
                return await self._look_up(request, action)
            if request.path == self.service.records_path:
                return await self._list(request)
        return refusal(404, "no_such_path", f"{self.service.name} has no such path").as_response()

    async def _perform(self, request: web.BaseRequest, action: Action) -> web.StreamResponse:
        body = await request.read()
        form = action.form.model_validate_json(body)
        key = request.headers.get("Idempotency-Key") if self.service.keyed else None
        if key is not None and not 1 <= len(key) <= 255:
            return refusal(422, "invalid_request", "a key has 1 to 255 characters").as_response()
        if key in self._in_progress:
            return IN_PROGRESS.as_response()
        fault = self._faults.take(self.service.name, action.operation, modes=ANSWERING)
        submission = _Submission(
            action=action,
            form=form,
            key=key,
            fingerprint=hashlib.sha256(action.path.encode() + b"\0" + body).digest(),
            declined=fault is not None and fault.mode is FaultMode.DECLINE,
        )
        commit = partial(self._commit, submission)
        if fault is not None and fault.mode is FaultMode.LATE_COMMIT:
            self._commit_late(commit, seconds=fault.seconds, key=key)
        return await _answer(request, work=commit, fault=fault)

    async def _commit(self, submission: _Submission) -> Answer:
        provider, operation = self.service.name, submission.action.operation
        lag = self._faults.take(provider, operation, modes=LAGGING)
        lag_seconds = lag.seconds if lag is not None else 0.0
        if self.temperament is Temperament.LAGGING:
            lag_seconds = max(lag_seconds, ACQUIRER_LAG_SECONDS)
        return await self._books.write(
            partial(self._decide_once, submission, lag_us=int(lag_seconds * 1_000_000))
        )

    def _decide_once(self, submission: _Submission, pages: Pages, *, lag_us: int) -> Answer:
        """In the writer's transaction: replay what is stored under the key, or decide and store."""
        provider, key, now = self.service.name, submission.key, now_us()
        if key is None:
            return self._decide(submission, pages, now=now, lag_us=lag_us)
        stored = pages.stored_answer(provider, key, since_us=now - self._key_lifetime_us)
        if stored is not None and self._forgets(submission.action):
            pages.forget_key(provider, key)
            stored = None
        if stored is not None:
            same = stored.fingerprint == submission.fingerprint
            return Answer(stored.status, stored.body) if same else KEY_REUSED
        decided = self._decide(submission, pages, now=now, lag_us=lag_us)
        pages.store_answer(
            provider,
            key,
            StoredAnswer(submission.fingerprint, decided.status, decided.body),
            created_us=now,
        )
        return decided

    def _forgets(self, action: Action) -> bool:
        return self._faults.take(self.service.name, action.operation, modes=FORGETTING) is not None

    def _decide(self, submission: _Submission, pages: Pages, *, now: int, lag_us: int) -> Answer:
        action = submission.action
        decision = (
            action.definite_no if submission.declined else action.decide(pages, submission.form)
        )
        match decision:
            case Answer():
                return decision
            case Effect():
                return answer(200, record_of(self.service, decision))
            case Draft():
                effect = self._write(submission, pages, decision, now=now, visible=now + lag_us)
                return answer(action.success_status, record_of(self.service, effect))
            case _:
                assert_never(decision)

    def _write(
        self, submission: _Submission, pages: Pages, draft: Draft, *, now: int, visible: int
    ) -> Effect:
        if draft.target is not None and draft.target_state is not None:
            pages.move(draft.target, draft.target_state)
        return pages.insert(
            NewEffect(
                id=f"{submission.action.prefix}_{secrets.token_hex(10)}",
                provider=self.service.name,
                operation=submission.action.operation,
                reference=submission.form.own_reference,
                key=submission.key,
                amount=draft.amount,
                currency=draft.currency,
                state=draft.state,
                target=draft.target,
                created_us=now,
                visible_us=visible,
            )
        )

    def _commit_late(self, commit: Work, *, seconds: float, key: str | None) -> None:
        async def commit_after_a_while() -> None:
            try:
                await asyncio.sleep(seconds)
                await commit()
            finally:
                self._in_progress.discard(key or "")

        if key is not None:
            self._in_progress.add(key)
        task = asyncio.create_task(commit_after_a_while())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _look_up(self, request: web.BaseRequest, action: Action) -> web.StreamResponse:
        wanted = ByReference.model_validate(dict(request.query))

        async def read() -> Answer:
            found = await self._books.read(
                lambda pages: pages.by_reference(
                    self.service.name,
                    action.operation,
                    wanted.reference,
                    now_us=now_us(),
                    limit=LOOK_UP_MAX,
                )
            )
            return answer(200, {"records": [record_of(self.service, effect) for effect in found]})

        return await self._read(request, "look_up", read)

    async def _list(self, request: web.BaseRequest) -> web.StreamResponse:
        window = Window.model_validate(dict(request.query))
        since_us, until_us = window.bounds_us

        async def read() -> Answer:
            found = await self._books.read(
                lambda pages: pages.between(
                    self.service.name,
                    since_us,
                    until_us,
                    after=window.after,
                    now_us=now_us(),
                    limit=window.limit + 1,
                )
            )
            page = found[: window.limit]
            more = cursor_after(page[-1]) if len(found) > window.limit else None
            records = [record_of(self.service, effect) for effect in page]
            return answer(200, {"records": records, "next_cursor": more})

        return await self._read(request, "list", read)

    async def _read(
        self, request: web.BaseRequest, operation: str, read: Work
    ) -> web.StreamResponse:
        if self.temperament is Temperament.BLIND:
            return NOT_OFFERED.as_response()
        fault = self._faults.take(self.service.name, operation, modes=READING)
        return await _answer(request, work=read, fault=fault)


async def _answer(
    request: web.BaseRequest, *, work: Work, fault: FaultOrder | None
) -> web.StreamResponse:
    """Do the work and answer, or what the fault does instead."""
    if fault is None or fault.mode is FaultMode.DECLINE:
        return (await work()).as_response()
    match fault.mode:
        case FaultMode.RATE_LIMIT:
            return _too_many(fault.seconds).as_response()
        case FaultMode.DROP_BEFORE_COMMIT | FaultMode.LATE_COMMIT:
            return reset(request)
        case FaultMode.COMMIT_THEN_DROP:
            await work()
            return reset(request)
        case FaultMode.COMMIT_THEN_500:
            await work()
            return INTERNAL.as_response()
        case FaultMode.SLOW:
            outcome = await work()
            await asyncio.sleep(fault.seconds)
            return outcome.as_response()
        case FaultMode.REFUSE_CONNECTION | FaultMode.LOOKUP_LAG | FaultMode.KEY_FORGOTTEN:
            raise AssertionError(f"{fault.mode} is not met here")
        case _:
            assert_never(fault.mode)


def _too_many(seconds: float) -> Answer:
    return refusal(
        429,
        "rate_limited",
        "too many requests; this one is not applied",
        headers={"Retry-After": str(math.ceil(seconds))},
    )


def sentence(error: ValidationError) -> str:
    """What is wrong with a body, without repeating its contents."""
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'body'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False)[:5]
    )
