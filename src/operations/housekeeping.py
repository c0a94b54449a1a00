"""Housekeeping's words: what its workflow and its activity say to each other."""

from operations.contracts import Payload

HOUSEKEEPING_RUN = "housekeeping"
EXPIRE_CLAIMS = "housekeeping.expire"

BATCH_CLAIMS = 500
"""A batch is one short transaction: it holds the locks of this many rows, for some milliseconds."""

BATCHES_MAX = 200
"""A run ends after this many batches and begins anew, so that its history stays short."""


class Expired(Payload):
    """What one batch did."""

    claims: int
    """How many keys have expired in it; fewer than asked for means that none is left."""
