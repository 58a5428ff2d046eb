"""The options of a run: one table of them, what they may not say, and mistakes in one line."""

LEAST_S, MOST_S = 0.1, 86400  # of a timeout: clocks and sockets take no number of any size
