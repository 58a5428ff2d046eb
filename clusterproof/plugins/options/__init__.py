"""The options of a run: one table, their validation, and one-line errors."""

MIN_S, MAX_S = 0.1, 86400  # of a timeout: clocks and sockets have limits
