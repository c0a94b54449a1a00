"""What can go wrong with the embedded stack, said so that a person can act on it.

EmbeddedError
├── PortTaken        another program listens on a port that was asked for
├── DirectoryInUse   another supervisor holds the data directory
├── ChildFailed      a child process never became ready
└── CommandFailed    a one-off command (initdb, migrate, keys issue) ended with an error
"""


class EmbeddedError(Exception):
    """The embedded stack cannot go on; the message says why and what to do."""


class PortTaken(EmbeddedError):
    """Another program listens on a port that a child needs."""


class DirectoryInUse(EmbeddedError):
    """Another supervisor holds the lock of the data directory."""


class ChildFailed(EmbeddedError):
    """A child process ended, or did not become ready, during start-up."""


class CommandFailed(EmbeddedError):
    """A command that prepares the stack ended with a non-zero status or ran out of time."""
