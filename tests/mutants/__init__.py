"""The suite's own tests, held against checks and rules that are wrong in one place."""
