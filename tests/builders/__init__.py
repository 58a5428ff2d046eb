"""What tests of several rooms are made with: recordings, runs, probes, captures of others, the wheel."""
