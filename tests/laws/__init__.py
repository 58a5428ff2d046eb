"""Laws over the whole fault matrix: what was seen is said, whatever else is missing, wrong or in another order."""
