"""The probe: the program that runs on a node, the collectors it runs, and the code that builds and decodes it."""
