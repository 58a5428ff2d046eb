"""Logs of nccl-tests, of nccom-test and of NCCL itself."""
