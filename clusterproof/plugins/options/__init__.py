"""The options of a run: their table, their validation, and one-line errors."""

LEAST_S, MOST_S = 0.1, 86400  # of a timeout: clocks and sockets take no number of any size
