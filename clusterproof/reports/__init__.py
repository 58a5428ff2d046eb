"""One file per form of report, all from the result record."""
