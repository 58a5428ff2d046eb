"""Neuron devices: the driver's sysfs and neuron-ls."""
