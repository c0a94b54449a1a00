"""`make demo`: three orders, what was lost on the way, and what came of it."""
