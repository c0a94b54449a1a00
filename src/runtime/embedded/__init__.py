"""The embedded stack: real Postgres and Temporal on one machine, and what keeps them running.

Every part can be started by itself: `EmbeddedPostgres`, `EmbeddedTemporal` and `EmbeddedStack` are
async context managers.
"""
