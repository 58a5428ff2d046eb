"""The installed suite, beside what others have installed."""
