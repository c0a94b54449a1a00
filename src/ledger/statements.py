"""Statements are written in SQLAlchemy Core, compiled once, and run by asyncpg itself.

SQLAlchemy's async layer costs several times what the query does (see `docs/performance.md`); its
expression language costs nothing after start-up, and keeps column names checked.
"""

from collections.abc import Mapping
from typing import Any, cast

from sqlalchemy import ARRAY, CTE, Text, bindparam, column, func, literal_column, select, true
from sqlalchemy import cast as sql_cast
from sqlalchemy.dialects.postgresql import asyncpg as asyncpg_dialect
from sqlalchemy.sql.elements import ClauseElement, ColumnElement
from sqlalchemy.types import TypeEngine

_DIALECT = asyncpg_dialect.dialect()


class Statement:
    """One compiled statement: `connection.fetchrow(*statement(tenant="acme"))`."""

    def __init__(self, expression: ClauseElement) -> None:
        """Compile `expression` for asyncpg."""
        compiled = expression.compile(dialect=_DIALECT)
        self.sql = str(compiled)
        if "POSTCOMPILE" in self.sql:
            raise ValueError("A list has no fixed number of parameters: use any_() on an array")
        self._names: tuple[str, ...] = tuple(getattr(compiled, "positiontup", None) or ())
        given = cast("Mapping[str, Any]", compiled.params)
        self._constants: dict[str, Any] = {
            name: given[name] for name in self._names if given[name] is not None
        }

    def __call__(self, **values: Any) -> tuple[Any, ...]:
        """The SQL text and its arguments, in order. Raises KeyError when one is missing."""
        return (self.sql, *self.arguments(**values))

    def arguments(self, **values: Any) -> tuple[Any, ...]:
        """The arguments alone, in order: for `executemany`."""
        constants = self._constants
        return tuple(values[name] if name in values else constants[name] for name in self._names)


def rows_given(columns: Mapping[str, TypeEngine[Any]], *, prefix: str = "") -> CTE:
    """Rows that come with a call, as a table: a statement gets a list of values for each column, as
    the parameter of its name after `prefix`."""
    given = func.unnest(
        *(sql_cast(bindparam(prefix + name), ARRAY(kind)) for name, kind in columns.items())
    ).table_valued(*(column(name, kind) for name, kind in columns.items()), name="given")
    return select(given.render_derived()).cte("asked")


def lock_wait_is_bounded() -> ColumnElement[bool]:
    """A condition that is always met, and bounds what this transaction waits for a lock from here
    on: by the parameter `lock_wait`, such as `100ms`."""
    name = literal_column("'lock_timeout'::text", Text)
    bound = func.set_config(name, bindparam("lock_wait", type_=Text), true())
    return select(bound).scalar_subquery().is_not(None)


def milliseconds(seconds: float) -> str:
    """A duration as Postgres reads it."""
    return f"{seconds * 1000:.0f}ms"
