"""The kernel log: kept, read into events, evaluated by the catalogue."""
