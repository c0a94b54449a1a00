"""What the probe must know about a service: a small TOML file, secrets from the environment."""

import json
import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class ConfigurationInvalidError(Exception):
    """The file cannot be read, is not TOML, or lacks something. The message says where."""


class KeyFormat(StrEnum):
    """How the probe spells ordinary keys."""

    BARE = "bare"
    QUOTED = "quoted"


_HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
_HeaderValue = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$")]
Headers = dict[_HeaderName, _HeaderValue]
"""Header fields that can stand on the wire (RFC 9110, section 5)."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Target(_Section):
    """The endpoint under test."""

    method: str = Field(default="POST", pattern=r"^[A-Z]{3,10}$")
    path: str = Field(pattern=r"^/[\x21-\x7e]*$")
    key_header: str = Field(default="Idempotency-Key", pattern=r"^[A-Za-z0-9-]{1,64}$")
    key_format: KeyFormat = KeyFormat.BARE
    key_required: bool = True
    operation_seconds: float = Field(default=10.0, gt=0, le=120)
    settle_seconds: float = Field(default=0.2, ge=0, le=30)
    credential_headers: tuple[str, ...] = ("Authorization",)
    headers: Headers = {}


class Body(_Section):
    """The JSON request and the ways in which it may be varied."""

    template: str
    changed: str = Field(pattern="^/")
    changed_to: Any
    number: str | None = Field(default=None, pattern="^/")
    invalid: str | None = None
    failing: str | None = None
    meaningful_query: str | None = Field(default=None, pattern=r"^[\x21-\x7e]+$")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for name in ("template", "invalid", "failing"):
            text = cast("str | None", getattr(self, name))
            if text is not None and not isinstance(json.loads(text), dict):
                raise ValueError(f"body.{name} must be a JSON object")
        if "{{nonce}}" not in self.template:
            raise ValueError("body.template must contain {{nonce}}, so that rules do not meet")
        document: object = json.loads(self.template)
        present = value_at(document, self.changed)
        if present == self.changed_to:
            raise ValueError("body.changed_to must differ from the value in the template")
        if self.number is not None and type(value_at(document, self.number)) is not int:
            raise ValueError("body.number must lead to an integer in the template")
        return self


class Effects(_Section):
    """How to count what happened: a GET of JSON that holds an array or a number."""

    url: str = Field(pattern=r"^(https?://|/)[\x21-\x7e]*$")
    pointer: str = Field(default="", pattern="^(/.*)?$")
    field: str | None = None
    headers: Headers = {}


class OtherTenant(_Section):
    """Headers that make a request come from somebody else."""

    headers: Headers = Field(min_length=1)


class Status(_Section):
    """Where a finished operation can be read."""

    path: str = Field(pattern=r"^/[\x21-\x7e]*\{\{key\}\}[\x21-\x7e]*$")


class InProgress(_Section):
    """Which statuses, answered to an identical request, mean that the first one still runs."""

    statuses: frozenset[int] = frozenset({202, 409, 425})


class Limits(_Section):
    """Bounds on what the probe sends and how long it takes."""

    race_requests: int = Field(default=10, ge=2, le=100)
    race_rounds: int = Field(default=3, ge=1, le=20)
    disconnects: int = Field(default=8, ge=1, le=50)
    rules_at_once: int = Field(default=1, ge=1, le=16)
    requests: int = Field(default=600, ge=50, le=10_000)
    total_seconds: float = Field(default=300.0, gt=0, le=3_600)
    seed: int = 1


class Configuration(_Section):
    """The whole file."""

    target: Target
    body: Body
    effects: Effects | None = None
    other_tenant: OtherTenant | None = None
    status: Status | None = None
    in_progress: InProgress = InProgress()
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _rules_can_be_told_apart(self) -> Self:
        by_difference = self.effects is not None and self.effects.field is None
        if by_difference and self.limits.rules_at_once > 1:
            raise ValueError("limits.rules_at_once above 1 needs effects.field")
        return self


def value_at(document: object, pointer: str) -> object:
    """The value that an RFC 6901 `pointer` leads to.

    Raises ValueError when there is none.
    """
    place = document
    for token in (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]):
        if isinstance(place, dict) and token in place:
            place = cast("dict[str, object]", place)[token]
        elif isinstance(place, list) and token.isdecimal() and int(token) < len(place):  # pyright: ignore[reportUnknownArgumentType]
            place = cast("list[object]", place)[int(token)]
        else:
            raise ValueError(f"nothing at {pointer}")
    return place


def example() -> str:
    """A commented configuration that loads as it stands once API_KEY is set."""
    return resources.files("runtime.probe").joinpath("example.toml").read_text(encoding="utf-8")


def load(path: Path, *, environment: Mapping[str, str]) -> Configuration:
    """Read `path`, with `${NAME}` replaced from `environment` in every string.

    Raises ConfigurationInvalidError, whose message names the member and never a secret's value.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationInvalidError(f"{path} cannot be read: {error}") from error
    return parse(text, environment=environment, name=str(path))


def parse(text: str, *, environment: Mapping[str, str], name: str) -> Configuration:
    """As `load`, from the text itself; `name` stands in messages."""
    try:
        document = tomllib.loads(text)
        return Configuration.model_validate(_filled_in(document, environment))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationInvalidError(f"{name} is not TOML: {error}") from error
    except ValidationError as error:
        complaints = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'file'}: {item['msg']}"
            for item in error.errors(include_url=False, include_input=False)
        )
        raise ConfigurationInvalidError(f"{name}: {complaints}") from error


def _filled_in(value: object, environment: Mapping[str, str]) -> object:
    def fill(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise ConfigurationInvalidError(f"the environment variable {match[1]} is not set")
        return environment[match[1]]

    if isinstance(value, str):
        return _VARIABLE.sub(fill, value)
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {key: _filled_in(member, environment) for key, member in members.items()}
    if isinstance(value, list):
        return [_filled_in(item, environment) for item in cast("list[object]", value)]
    return value
