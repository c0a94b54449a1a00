"""The ways in which one JSON request is written: the same content, or another one."""

import copy
import json
from typing import cast

from runtime.probe.configuration import Body, value_at

# Two integers that become one when a parser keeps numbers as 64-bit floats (RFC 8259, section 6).
BEYOND_FLOAT = ("9007199254740992", "9007199254740993")

_RAW = "\ue000raw\ue000"


class Bodies:
    """All spellings of one request, with its own nonce."""

    def __init__(self, source: Body, *, nonce: str) -> None:
        """Of `source`, with `{{nonce}}` filled in."""
        self._source = source
        self._nonce = nonce
        self._document = self._filled(source.template)

    @property
    def plain(self) -> bytes:
        """The request as it is usually sent."""
        return _encoded(self._document)

    @property
    def changed(self) -> bytes:
        """A valid request with another meaning."""
        return _encoded(self._with(self._source.changed, self._source.changed_to))

    @property
    def reordered(self) -> bytes:
        """The same content, members in reverse order at every level."""
        return _encoded(_reversed(self._document))

    @property
    def spaced(self) -> bytes:
        """The same content with other insignificant white space."""
        return json.dumps(self._document, indent=3).encode() + b"\n"

    @property
    def respelled(self) -> bytes | None:
        """The same content with one integer written as a decimal fraction; None when not marked."""
        if self._source.number is None:
            return None
        return self._with_raw(
            self._source.number, f"{value_at(self._document, self._source.number)}.0"
        )

    def large(self, which: int) -> bytes | None:
        """One of two requests whose numbers differ only beyond 2^53; None when not marked."""
        if self._source.number is None:
            return None
        return self._with_raw(self._source.number, BEYOND_FLOAT[which])

    @property
    def duplicated(self) -> bytes:
        """A document that names one member twice: first with the changed value, then as usual."""
        name = self._source.changed.split("/")[1].replace("~1", "/").replace("~0", "~")
        other = cast("dict[str, object]", self._with(self._source.changed, self._source.changed_to))
        first = json.dumps({name: other[name]})
        return (first[:-1] + ", " + json.dumps(self._document)[1:]).encode()

    @property
    def invalid(self) -> bytes:
        """A request that validation should refuse."""
        if self._source.invalid is not None:
            return _encoded(self._filled(self._source.invalid))
        document = copy.deepcopy(self._document)
        holder_pointer, _, name = self._source.changed.rpartition("/")
        holder = value_at(document, holder_pointer)
        if isinstance(holder, dict):
            del cast("dict[str, object]", holder)[name.replace("~1", "/").replace("~0", "~")]
        else:
            del cast("list[object]", holder)[int(name)]
        return _encoded(document)

    @property
    def failing(self) -> bytes | None:
        """A request that is executed and answered with an error; None when not configured."""
        return (
            None if self._source.failing is None else _encoded(self._filled(self._source.failing))
        )

    def _filled(self, template: str) -> object:
        return json.loads(template.replace("{{nonce}}", self._nonce))

    def _with(self, pointer: str, value: object) -> object:
        document = copy.deepcopy(self._document)
        holder_pointer, _, name = pointer.rpartition("/")
        holder = value_at(document, holder_pointer)
        if isinstance(holder, dict):
            name = name.replace("~1", "/").replace("~0", "~")
            cast("dict[str, object]", holder)[name] = value
        else:
            cast("list[object]", holder)[int(name)] = value
        return document

    def _with_raw(self, pointer: str, spelling: str) -> bytes:
        text = json.dumps(self._with(pointer, _RAW))
        return text.replace(json.dumps(_RAW), spelling).encode()


def _encoded(document: object) -> bytes:
    return json.dumps(document).encode()


def _reversed(value: object) -> object:
    if isinstance(value, dict):
        members = list(cast("dict[str, object]", value).items())
        return {name: _reversed(member) for name, member in reversed(members)}
    if isinstance(value, list):
        return [_reversed(item) for item in cast("list[object]", value)]
    return value
