"""What Temporal runs: deterministic, no I/O. Activities are named by contract, never imported."""
