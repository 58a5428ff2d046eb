"""The suite as it is installed, beside what others have installed."""
