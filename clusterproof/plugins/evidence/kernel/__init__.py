"""The kernel that runs, those that are installed, and its clock."""
