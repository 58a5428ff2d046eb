"""The probe: the program that runs on a node, its leaves of evidence, and what builds and decodes it."""
