"""The PCI bus, independent of drivers."""
