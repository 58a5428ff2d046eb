"""The kernel log: kept, parsed into events, evaluated by the catalogue."""
