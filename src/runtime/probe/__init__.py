"""`tallystick probe`: asks any HTTP service with idempotency keys whether it keeps its word."""
