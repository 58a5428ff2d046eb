"""The suite's own tests against checks and rules with one mistake each."""
