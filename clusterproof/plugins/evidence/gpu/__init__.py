"""GPUs: the driver through NVML, nvidia-smi in every form, the fabric manager."""
