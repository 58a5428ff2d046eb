"""The GPUs as the driver tells of them: libnvidia-ml.so.1 through nvidia-ml-py."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

from clusterproof.plugins.probe.nvml_gpu import values
from clusterproof.plugins.probe.reading import Absent, Broke, Node
