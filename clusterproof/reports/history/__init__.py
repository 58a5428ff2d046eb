"""`--history FILE`: what was found in every run, by check, node and hardware, in one SQLite file."""
