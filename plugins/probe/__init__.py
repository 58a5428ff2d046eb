"""The probe: the program that runs on a node, the leaves of evidence it reads, and the code that sends and decodes it."""
