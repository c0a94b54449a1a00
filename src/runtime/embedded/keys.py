"""The API keys of an embedded stack: issued once, kept in a private file, used again."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError

from runtime.embedded.errors import CommandFailed
from runtime.embedded.files import write_private


class KeyHolder(NamedTuple):
    """Whose key it is, and what its bearer may do."""

    tenant: str
    role: str


HOLDERS: Final[Mapping[str, KeyHolder]] = MappingProxyType(
    {
        "acme": KeyHolder("acme", "client"),
        "globex": KeyHolder("globex", "client"),
        "operator": KeyHolder("acme", "operator"),
    }
)

_KEPT: Final = TypeAdapter(dict[str, str])


class _Issued(BaseModel):
    """What `keys issue --output json` prints."""

    id: str
    token: str


class KeyRing:
    """The tokens by name, in `keys.json` of a data directory."""

    def __init__(self, path: Path, *, issue: Callable[[KeyHolder], Awaitable[str]]) -> None:
        """Keep tokens in `path`; `issue` makes one and returns what the command printed."""
        self._path = path
        self._issue = issue

    async def gather(self) -> dict[str, str]:
        """Return a token for every holder, issuing those that are not kept yet.

        Raises:
            CommandFailed: a key could not be issued.
        """
        kept = self._kept()
        missing = [name for name in HOLDERS if name not in kept]
        tokens = await asyncio.gather(*(self._token(HOLDERS[name]) for name in missing))
        ring = {**kept, **dict(zip(missing, tokens, strict=True))}
        if missing:
            write_private(self._path, json.dumps(ring, indent=2))
        return ring

    async def refresh(self, *, works: Callable[[str], Awaitable[bool]]) -> dict[str, str]:
        """Return a token for every holder, replacing those that no longer work.

        Raises:
            CommandFailed: a key could not be issued.
        """
        ring = await self.gather()
        verdicts = await asyncio.gather(*(works(token) for token in ring.values()))
        alive = {name: ring[name] for name, good in zip(ring, verdicts, strict=True) if good}
        if len(alive) == len(ring):
            return ring
        write_private(self._path, json.dumps(alive, indent=2))
        return await self.gather()

    def _kept(self) -> dict[str, str]:
        try:
            kept = _KEPT.validate_json(self._path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return {}
        return {name: token for name, token in kept.items() if name in HOLDERS}

    async def _token(self, holder: KeyHolder) -> str:
        said = await self._issue(holder)
        try:
            return _Issued.model_validate_json(said).token
        except ValidationError as error:
            raise CommandFailed("keys issue did not print the expected JSON") from error
