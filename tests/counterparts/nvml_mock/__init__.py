"""NVIDIA's mock of NVML, with its injector of faults, in the place of the fake NVML library."""
