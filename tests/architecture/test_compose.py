"""The Compose file says the same as the program: its commands, settings and search attributes."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from operations.search import SEARCH_ATTRIBUTES
from runtime.embedded.temporal import RETENTION, SHARED_CONFIG
from runtime.settings import Settings

ROOT = Path(__file__).parents[2]
PREFIX = "TALLYSTICK_"
OURS = "tallystick:local"


class Service(BaseModel):
    """What these tests look at of a service."""

    image: str
    command: list[str] = []
    environment: dict[str, str] = {}
    depends_on: dict[str, dict[str, str]] = {}
    healthcheck: dict[str, Any] | None = None
    stop_grace_period: str = "10s"


class Compose(BaseModel):
    """The Compose file, with its aliases and merges resolved."""

    services: dict[str, Service]

    def ours(self) -> dict[str, Service]:
        """The services that run our image."""
        return {name: one for name, one in self.services.items() if one.image == OURS}


def _read(name: str) -> Any:
    return YAML(typ="safe").load((ROOT / name).read_text())  # pyright: ignore[reportUnknownMemberType]


@pytest.fixture(scope="module")
def compose() -> Compose:
    return Compose.model_validate(_read("docker-compose.yml"))


def test_every_command_and_option_exists(compose: Compose) -> None:
    cli = pytest.importorskip("runtime.cli")
    from typer.main import get_command

    program: Any = get_command(cli.app)
    for service in compose.ours().values():
        name, *options = service.command
        known = {option for parameter in program.commands[name].params for option in parameter.opts}
        assert {option.partition("=")[0] for option in options} <= known


def test_every_setting_exists(compose: Compose) -> None:
    fields = {PREFIX + name.upper() for name in Settings.model_fields}
    for service in compose.ours().values():
        assert service.environment.keys() <= fields
    example = (ROOT / ".env.example").read_text()
    assert set(re.findall(rf"^# ({PREFIX}\w+)=", example, re.MULTILINE)) <= fields


def test_namespace_has_our_search_attributes_and_retention(compose: Compose) -> None:
    namespace = compose.services["temporal-namespace"].environment
    settings = compose.services["worker"].environment

    assert tuple(namespace["SEARCH_ATTRIBUTES"].split()) == SEARCH_ATTRIBUTES
    assert namespace["RETENTION"] == f"{RETENTION.total_seconds() / 3600:.0f}h"
    assert namespace["TEMPORAL_NAMESPACE"] == settings["TALLYSTICK_TEMPORAL_NAMESPACE"]


def test_server_has_the_embedded_servers_limits_and_512_shards(compose: Compose) -> None:
    configured = _read("deploy/temporal-dynamic-config.yaml")
    said = {key: str(values[0]["value"]).lower() for key, values in configured.items()}

    assert said == SHARED_CONFIG
    assert compose.services["temporal"].environment["NUM_HISTORY_SHARDS"] == "512"


def test_worker_has_longer_to_stop_than_it_drains(compose: Compose) -> None:
    worker = compose.services["worker"]
    drain_seconds = float(worker.environment["TALLYSTICK_WORKER_DRAIN_SECONDS"])

    assert float(worker.stop_grace_period.removesuffix("s")) > drain_seconds


def test_no_password_has_a_default(compose: Compose) -> None:
    for service in compose.services.values():
        for name, value in service.environment.items():
            if "PASSWORD" in name or name.endswith(("_PWD", "DATABASE_URL")):
                assert ":?" in value


def test_every_image_of_others_is_pinned_and_every_server_is_probed(compose: Compose) -> None:
    for name, service in compose.services.items():
        assert re.search(r":\d+(\.\d+)*$", service.image) or service.image == OURS
        if any(name in other.depends_on for other in compose.services.values()):
            waited_for = {
                other.depends_on[name]["condition"]
                for other in compose.services.values()
                if name in other.depends_on
            }
            assert "service_healthy" not in waited_for or service.healthcheck is not None
