"""TCP ports on the loopback address: picking free ones and naming those that are taken."""

import random
import socket

from runtime.embedded.errors import PortTaken

LOOPBACK = "127.0.0.1"

# Below the range from which Linux (32768) and macOS (49152) take source ports. A client that keeps
# retrying a stopped server on a port of that range can connect to itself, and the restarted server
# then finds its own port taken.
_FIRST_PORT = 20_000
_LAST_PORT = 32_000
_MAX_ATTEMPTS = 200

_picked: set[int] = set()


def is_free(port: int) -> bool:
    """Whether `port` can be listened on at the loopback address at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Servers set it too: connections in TIME_WAIT do not make a port taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def pick_port() -> int:
    """Return a free port that this process has not picked before.

    Raises:
        PortTaken: no free port was found in a bounded number of attempts.
    """
    for _ in range(_MAX_ATTEMPTS):
        port = random.randint(_FIRST_PORT, _LAST_PORT)  # noqa: S311 - spreads stacks apart, no secret
        if port not in _picked and is_free(port):
            _picked.add(port)
            return port
    raise PortTaken(f"no free port found between {_FIRST_PORT} and {_LAST_PORT} on {LOOPBACK}")


def port_or_pick(port: int) -> int:
    """Return `port`, or a free one when it is 0."""
    return port or pick_port()


def require_free(port: int, *, option: str, name: str) -> None:
    """Refuse a port that is taken, naming it and the option that chooses another.

    Raises:
        PortTaken: something listens on `port`.
    """
    if not is_free(port):
        raise PortTaken(
            f"port {port} for {name} is taken by another program: "
            f"stop that program, or choose another port with {option} (0 picks a free one)"
        )
