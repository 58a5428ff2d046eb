"""Checks that put load on the hardware and measure it."""
