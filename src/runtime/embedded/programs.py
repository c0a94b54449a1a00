"""How our own programs run as children: their commands, their environment, how they are ready."""

import importlib.util
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import httpx

from runtime.embedded.ports import LOOPBACK, port_or_pick
from runtime.embedded.supervisor import ChildSpec

API: Final = "api"
WORKER: Final = "worker"
PROVIDERS: Final = "providers"

# Longer than the longest provider timeout: a worker that is asked to stop finishes its calls.
_DRAIN_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 10.0

Probe = Callable[[str], Awaitable[bool]]
"""Answers whether a GET of a URL gives 200 now."""


TALLYSTICK: Final = (sys.executable, "-m", "runtime.cli")
"""The program `tallystick`, run by this Python."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """Every port of our own programs; picked once, so that a restarted child keeps its own."""

    api: int
    worker_health: int
    admin: int
    payments: int
    acquirer: int
    warehouse: int
    carrier: int
    mail: int

    @classmethod
    def pick(cls, *, api: int = 0, admin: int = 0) -> "Ports":
        """Take the given ports, and free ones for 0 and for all the others."""
        chosen = {"api": api, "admin": admin}
        return cls(**{field.name: port_or_pick(chosen.get(field.name, 0)) for field in fields(cls)})


PROVIDER_NAMES: Final = ("payments", "acquirer", "warehouse", "carrier", "mail")


def url(port: int) -> str:
    """The address of an HTTP server of ours."""
    return f"http://{LOOPBACK}:{port}"


def environment(
    ports: Ports, *, database_url: str, temporal_address: str, temporal_ui_url: str
) -> dict[str, str]:
    """The settings of every child, as environment variables."""
    providers = {
        f"TALLYSTICK_{name.upper()}_URL": url(getattr(ports, name)) for name in PROVIDER_NAMES
    }
    return {
        "PYTHONUNBUFFERED": "1",
        "TALLYSTICK_DATABASE_URL": database_url,
        "TALLYSTICK_TEMPORAL_ADDRESS": temporal_address,
        "TALLYSTICK_TEMPORAL_UI_URL": temporal_ui_url,
        "TALLYSTICK_API_HOST": LOOPBACK,
        "TALLYSTICK_API_PORT": str(ports.api),
        "TALLYSTICK_WORKER_HEALTH_PORT": str(ports.worker_health),
        # Whoever develops against it receives events on this machine.
        "TALLYSTICK_ENDPOINTS_ALLOW_HTTP": "true",
        "TALLYSTICK_ENDPOINTS_ALLOW_PRIVATE": "true",
        **providers,
    }


def bytecode_settings(data_dir: Path) -> dict[str, str]:
    """Let children keep their compiled modules in the data directory, where nothing else keeps any.

    Where Python was told to write no bytecode and the installation brought none, every child would
    compile all of it at every start: three seconds of processor time each.
    """
    brought = Path(importlib.util.cache_from_source(httpx.__file__)).exists()
    if brought or not sys.dont_write_bytecode:
        return {}
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(data_dir / "bytecode")}


def providers_spec(
    ports: Ports, *, program: tuple[str, ...], data_dir: Path, probe: Probe
) -> ChildSpec:
    """The simulated providers, with a ledger that survives them."""
    numbers = {"admin": ports.admin, **{name: getattr(ports, name) for name in PROVIDER_NAMES}}
    options = [part for name, port in numbers.items() for part in (f"--{name}-port", str(port))]
    return ChildSpec(
        name=PROVIDERS,
        command=(
            *program,
            "providers",
            "--ledger",
            str(data_dir / "providers.db"),
            *options,
            "--announce",
            str(data_dir / "providers.json"),
        ),
        ready=lambda: probe(f"{url(ports.admin)}/admin/health"),
        environment={"PYTHONUNBUFFERED": "1", **bytecode_settings(data_dir)},
        ports={"--providers-port": ports.admin},
        stop=((signal.SIGTERM, _STOP_SECONDS),),
    )


def worker_spec(
    ports: Ports, *, program: tuple[str, ...], settings: Mapping[str, str], probe: Probe
) -> ChildSpec:
    """The worker, in a process of its own."""
    return ChildSpec(
        name=WORKER,
        command=(*program, "worker"),
        ready=lambda: probe(f"{url(ports.worker_health)}/readyz"),
        environment=settings,
        stop=((signal.SIGTERM, _DRAIN_SECONDS),),
    )


def api_spec(
    ports: Ports,
    *,
    program: tuple[str, ...],
    settings: Mapping[str, str],
    probe: Probe,
    with_worker: bool,
) -> ChildSpec:
    """The API, alone or with the worker in the same process."""
    return ChildSpec(
        name=API,
        command=(*program, "serve" if with_worker else "api"),
        ready=lambda: probe(f"{url(ports.api)}/readyz"),
        environment=settings,
        ports={"--api-port": ports.api},
        stop=((signal.SIGTERM, _DRAIN_SECONDS if with_worker else _STOP_SECONDS),),
    )
