"""How many faults exact arithmetic finds, and what it reports on correct results."""
