"""Postgres truth: tables, statements, and one method per transaction."""
