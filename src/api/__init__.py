"""The front door: the idempotency boundary, reading, operating, and helpful problems."""
