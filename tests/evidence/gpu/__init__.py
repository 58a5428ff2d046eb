"""GPUs as NVML and nvidia-smi report them."""
