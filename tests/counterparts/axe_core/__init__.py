"""The page of a run against axe-core: what assistive programs need of it."""
