"""The statements of the inbox."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Text,
    any_,
    bindparam,
    case,
    delete,
    func,
    literal,
    null,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from ledger import effect_rows
from ledger.message_tables import entities, inbox
from ledger.statements import Statement
from ledger.tables import claims, effects
from operations.messages import Reading
from operations.states import EffectState

PAUSE_SECONDS_MAX = 3600
TELL_PAUSE_SECONDS_MAX = 60

FIELDS = [
    "provider",
    "entity",
    "version",
    "rank",
    "state",
    "event",
    "payload",
    "exists",
    "reference",
    "provider_reference",
    "amount_minor",
    "currency",
]
KEEP = Statement(
    insert(inbox)
    .values(
        **{name: bindparam(name) for name in FIELDS},
        received_at=bindparam("now"),
        reading=Reading.UNRELATED.value,
    )
    .on_conflict_do_nothing(index_elements=["provider", "entity", "version"])
    .returning(inbox.c.id)
)
_state = insert(entities).values(
    provider=bindparam("provider"),
    entity=bindparam("entity"),
    rank=bindparam("rank"),
    version=bindparam("version"),
    state=bindparam("state"),
    updated_at=bindparam("now"),
)
MOVE_FORWARD = Statement(
    _state.on_conflict_do_update(
        index_elements=["provider", "entity"],
        set_={
            "rank": _state.excluded.rank,
            "version": _state.excluded.version,
            "state": _state.excluded.state,
            "updated_at": _state.excluded.updated_at,
        },
        where=_state.excluded.rank > entities.c.rank,
    ).returning(entities.c.rank)
)
_found = select(*effect_rows.EFFECT_COLUMNS, claims.c.state.label("claim_state")).join(
    claims, claims.c.id == effects.c.claim_id
)
BY_REFERENCE = Statement(
    _found.where(
        effects.c.key == bindparam("reference"), effects.c.provider == bindparam("provider")
    )
)
BY_PROVIDER_REFERENCE = Statement(
    _found.where(
        effects.c.provider == bindparam("provider"),
        effects.c.provider_reference == bindparam("provider_reference"),
    )
    .order_by(effects.c.created_at)
    .limit(1)
)
LOCK_CLAIM = Statement(
    select(claims.c.state).where(claims.c.id == bindparam("claim_id")).with_for_update()
)
COUNT_UP = Statement(
    update(claims)
    .where(claims.c.id == bindparam("claim_id"))
    .values(revision=claims.c.revision + 1, updated_at=bindparam("now"))
)
CONFIRM = Statement(
    update(effects)
    .where(effect_rows.same_effect)
    .values(
        state=EffectState.CONFIRMED.value,
        provider_reference=bindparam("provider_reference"),
        reason=bindparam("reason"),
        updated_at=bindparam("now"),
    )
)
READ_AS = Statement(
    update(inbox)
    .where(inbox.c.id == bindparam("id"))
    .values(
        reading=bindparam("reading"),
        applied_at=bindparam("applied_at"),
        claim_id=bindparam("claim_id"),
        step=bindparam("step"),
        purpose=bindparam("purpose"),
        check_at=bindparam("check_at"),
    )
)
_due = (
    select(inbox.c.id)
    .where(inbox.c.check_at <= bindparam("now"))
    .order_by(inbox.c.check_at)
    .limit(bindparam("limit"))
    .with_for_update(skip_locked=True)
    .scalar_subquery()
)
_pause = func.least(
    func.power(2, func.least(inbox.c.checks, 20)),
    case(
        (inbox.c.reading == Reading.CONFIRMED.value, TELL_PAUSE_SECONDS_MAX),
        else_=PAUSE_SECONDS_MAX,
    ),
)
TAKE_DUE = Statement(
    update(inbox)
    .where(inbox.c.id.in_(_due))
    .values(
        checks=inbox.c.checks + 1,
        check_at=bindparam("now", type_=inbox.c.check_at.type)
        + func.make_interval(0, 0, 0, 0, 0, 0, _pause),
    )
    .returning(*inbox.c)
)
LOCK = Statement(select(*inbox.c).where(inbox.c.id == bindparam("id")).with_for_update())
FINISH = Statement(update(inbox).where(inbox.c.id == bindparam("id")).values(check_at=null()))
WAKE = Statement(
    update(inbox)
    .where(
        inbox.c.reference == any_(bindparam("references", type_=ARRAY(Text))),
        inbox.c.reading == literal(Reading.WAITING.value),
    )
    .values(check_at=bindparam("now"), checks=0)
)
_old = (
    select(inbox.c.id)
    .where(inbox.c.received_at < bindparam("before"), inbox.c.check_at.is_(None))
    .order_by(inbox.c.received_at)
    .limit(bindparam("limit", type_=BigInteger))
    .scalar_subquery()
)
FORGET = Statement(delete(inbox).where(inbox.c.id.in_(_old)).returning(inbox.c.id))
