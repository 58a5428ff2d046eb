"""FSx: file systems that nodes mount, their limits and their load."""
