"""The PCI bus, whatever drivers think of what is on it."""
