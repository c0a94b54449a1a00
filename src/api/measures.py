"""What Prometheus is told. Labels come from closed sets: never a key, a tenant or a path."""

from enum import StrEnum

from prometheus_client import Counter, Gauge, Histogram


class Fate(StrEnum):
    """What became of a submission."""

    FRESH = "fresh"
    """It claimed its key."""
    ATTACHED = "attached"
    """The key was claimed, and there was no receipt yet."""
    REPLAYED = "replayed"
    """There was a receipt."""
    REFUSED = "refused"
    """A problem: nothing was claimed."""


CLAIMS = Counter("tallystick_claims", "Submissions by what became of them.", ["operation", "fate"])
REQUESTS = Counter(
    "tallystick_requests",
    "Answered requests; `outcome` is the operation's, where it has ended.",
    ["operation", "outcome", "status"],
)
SECONDS = Histogram(
    "tallystick_request_seconds",
    "From the first byte of a request to its whole answer, waiting included.",
    ["operation"],
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
WAITING = Gauge("tallystick_waiting_requests", "Requests and streams that wait for a change.")
STREAMS = Gauge("tallystick_event_streams", "Event streams that are open.")
STARTS_WAITING = Gauge("tallystick_starts_waiting", "Runs that wait for their turn to be started.")
OPEN_PER_TENANT = Gauge(
    "tallystick_starts_open_per_tenant",
    "How many runs one tenant may have open now before its next start waits.",
)
