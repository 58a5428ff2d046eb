"""The probe: the program that runs on a node, its collectors of evidence, and what builds and decodes it."""
