"""The sections of `report.html`, its figures, its styles and its scripts."""
