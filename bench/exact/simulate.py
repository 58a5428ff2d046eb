"""Injects faults into exact products: how many are found, and how many correct products are reported?

PyTorch multiplies on the CPU, or with --device cuda on a GPU, in every data type it supports there, and four ranks
exchange data over gloo or NCCL. The last line is one JSON object. A fault that changes no result is absorbed: more are
injected until enough have changed one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.real_runs import PYTHONS, torch_python
from clusterproof.plugins.catalog import exact_kinds_setting
from scripts.arguments import Arguments, count

FAULTS, CLEAN = 10_000, 1_000_000
MIN_FOUND = 0.9999
ROOT = Path(__file__).parents[2]


def simulate(python: str, faults: int, clean: int, seed: int, device: str) -> tuple[str, Mapping[str, int]]:
    """Run the fault program in that Python: its output and its figures. Raises subprocess.CalledProcessError."""
    arguments = [exact_kinds_setting(), str(faults), str(clean), str(seed), device]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    ran = subprocess.run(
        [python, "-m", "bench.exact.found", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    tables, _, last = ran.stdout.strip().rpartition("\n")
    return tables, json.loads(last)


def is_good(figures: Mapping[str, int]) -> bool:
    """Whether enough faults were found and no correct product was reported."""
    return figures["found"] >= MIN_FOUND * figures["faults"] > 0 and not figures["false"]


def main(arguments: Sequence[str]) -> int:
    """Print the tables and the figures; return 0 if they are good."""
    parser = Arguments("scripts/simulate exact", __doc__)
    parser.add_argument("faults", type=count, nargs="?", default=FAULTS, help=f"number of faults (default {FAULTS})")
    parser.add_argument(
        "clean", type=count, nargs="?", default=CLEAN, help=f"number of clean products (default {CLEAN})"
    )
    parser.add_argument("--seed", type=count, default=1, help="random seed (default 1)")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="the device that multiplies (default cpu)"
    )
    parser.add_argument("--torch-python", metavar="PATH", help="a Python that has PyTorch")
    option = parser.parse_args(arguments)
    python = torch_python(option.torch_python)
    if python is None:
        tried = option.torch_python or ", ".join(PYTHONS)
        parser.error(f"no PyTorch in {tried}; expected --torch-python PATH, or: apt-get install python3-torch")
    tables, figures = simulate(python, option.faults, option.clean, option.seed, option.device)
    print(tables)
    print(json.dumps(figures))
    return 0 if is_good(figures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
