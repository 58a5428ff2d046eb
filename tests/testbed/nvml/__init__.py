"""A fake NVML library: the driver's answers, read from a text file."""
