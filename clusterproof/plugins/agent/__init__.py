"""The probe, the program that runs on a node: it is built here, and its answer decoded."""
