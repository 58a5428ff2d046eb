"""What a run reports, written without pytest; all of it comes from the results."""
