"""The kernel log: kept, read into events, judged by the catalogue."""
