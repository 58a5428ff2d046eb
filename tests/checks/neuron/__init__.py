"""Checks of Neuron devices."""
