"""The vocabulary of Tallystick: what an operation is, and what may be said about it. No I/O."""
