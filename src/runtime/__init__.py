"""The composition root: settings, wiring, processes, the embedded stack, and the command line."""
