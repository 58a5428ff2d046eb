"""GPUs: from the driver through NVML, from nvidia-smi's output, and the fabric manager."""
