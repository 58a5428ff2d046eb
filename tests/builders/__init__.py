"""What tests of several rooms are built with: recordings, runs, probes, captures of others, the wheel."""
