"""Builders used in several test folders: recordings, runs, probes, third-party captures, the wheel."""
