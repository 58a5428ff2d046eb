"""The host: processors, memory, services, limits and the kernel."""
