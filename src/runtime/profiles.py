"""A deployment's own figures about its providers: what their contracts, or a test, say instead."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from operations.guarantees import ProviderProfile

Seconds = Annotated[float, Field(gt=0)]


class ProfileOverride(BaseModel):
    """Figures of one provider's profile that differ from the shipped ones.

    A guarantee is no figure: what a provider deduplicates by is a property of its interface, and of
    the client that speaks it. `can_look_up` may only be taken away.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    account: str | None = None
    region: str | None = None
    can_look_up: Annotated[bool | None, Field(description="false, or left out")] = None
    send_timeout_seconds: Seconds | None = None
    key_lifetime_seconds: Seconds | None = None
    key_margin_seconds: Annotated[float, Field(ge=0)] | None = None
    lookup_horizon_seconds: Annotated[float, Field(ge=0)] | None = None
    lookup_interval_seconds: Seconds | None = None
    blind_resends: Annotated[int, Field(ge=0, le=10)] | None = None
    patience_seconds: Seconds | None = None

    def apply(self, profile: ProviderProfile) -> ProviderProfile:
        """`profile` with these figures. Raises ValueError for promises that contradict it."""
        if self.can_look_up and not profile.can_look_up:
            raise ValueError(f"{profile.provider}: its records cannot be read; no setting helps")
        return ProviderProfile.model_validate(
            {**profile.model_dump(), **self.model_dump(exclude_none=True)}
        )


def adjusted(profile: ProviderProfile, overrides: Mapping[Any, ProfileOverride]) -> ProviderProfile:
    """`profile` with the figures that `overrides` has under its provider's name, if any."""
    override = overrides.get(profile.provider)
    return profile if override is None else override.apply(profile)
