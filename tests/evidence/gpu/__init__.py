"""GPUs as NVML and nvidia-smi tell them."""
