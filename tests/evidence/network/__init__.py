"""Names, devices and domains of the network."""
