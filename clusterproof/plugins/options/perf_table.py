"""The options for load on single nodes, and for pairs of nodes."""

from __future__ import annotations

import re

from clusterproof.plugins.options.table import Option

QUICK, FULL = "quick", "full"
DOUBLING, ALL = "doubling", "all"
MIN_NODES = 3  # of a group: two are a pair
# Other modules have tables of these, which are not imported: that would slow every run of pytest.
LOADS = (
    "dcgm_diag",
    "gpu_bandwidth",
    "node_busbw",
    "gpu_gemm",
    "gpu_exact",
    "exact_collective",
    "exact_step",
    "cpu_exact",
    "stress_ng",
    "nccom",
    "efa_loopback",
    "fs_bandwidth",
)
DCGM_LEVELS = (1, 2, 3, 4)
METERS = ("nccl-tests", "nccom-test", "iperf3", "fi_pingpong", "exact", "rdma_mesh")
LAUNCHERS = ("srun", "mpirun", "ssh", "pods")

GROUPS: dict[str, tuple[Option, ...]] = {
    "clusterproof: load, where -m names perf": (
        Option(
            "--load-timeout",
            "seconds for a measurement of one node: for all (600), or for some (dcgm_diag=1200,gpu_gemm=60); they are "
            + ", ".join(LOADS),
            {"default": "", "metavar": "S"},
        ),
        Option(
            "--dcgm-level",
            "how thorough dcgmi diag is: 1 (seconds), 2 (the default: 2 to 10 min), 3 (15 min), 4 (1 to 2 h)",
            {"type": int, "default": 2, "choices": DCGM_LEVELS, "metavar": "N"},
        ),
        Option(
            "--dcgm-parameters",
            "what dcgmi diag takes after -p: TEST.NAME=VALUE;…, e.g. diagnostic.test_duration=300",
            {"default": "", "metavar": "PARAMETERS"},
        ),
        Option(
            "--load-path",
            "folders of the nodes with all_reduce_perf, nvbandwidth, … where neither PATH nor docs/load.md names them",
            {"default": "", "metavar": "DIR:…"},
        ),
        Option(
            "--exact-s",
            "seconds for exact products on each GPU (default 60); each type is multiplied once in any case",
            {"type": float, "default": 60.0, "metavar": "S"},
        ),
        Option(
            "--stress-s",
            "run stress-ng for so many seconds on all cores, and on up to half of the memory; it verifies its results",
            {"type": int, "default": 0, "metavar": "S"},
        ),
        Option(
            "--torch-python",
            "the Python of the nodes that has PyTorch (default: the first of those that docs/load.md names)",
            {"default": "", "metavar": "PATH"},
        ),
        Option(
            "--fs-bandwidth",
            "measure how fast nodes write and read a scratch file in this folder of theirs; it is removed after",
            {"default": "", "metavar": "DIR"},
        ),
        Option(
            "--fs-size",
            "MiB of that scratch file (default 4096); four times as much must be free",
            {"type": int, "default": 4096, "metavar": "MIB"},
        ),
        Option(
            "--fs-at-once",
            "how many nodes write and read at once (default 4: they may share the file system)",
            {"type": int, "default": 4, "metavar": "N"},
        ),
    ),
    "clusterproof: pairs of nodes, where -m names perf": (
        Option(
            "--pairs",
            "which to measure: quick (the default: a few rounds, then every suspect again with good partners), full "
            "(every pair), or A~B,…",
            {"default": QUICK, "metavar": "WHICH"},
        ),
        Option(
            "--groups",
            "then groups of nodes, without those found slow: doubling (4, 8, … and all), all, or sizes (4,16,all)",
            {"default": "", "metavar": "WHICH"},
        ),
        Option(
            "--pairs-at-once", "how many to measure at once (default: all of a round)", {"type": int, "metavar": "N"}
        ),
        Option(
            "--pairs-budget",
            "the time for all of it, e.g. 90s, 20m or 2h (default 20m); the least informative is left out, and named",
            {"default": "20m", "metavar": "TIME"},
        ),
        Option("--pairs-seed", "which random rounds (default: others in every run)", {"type": int, "metavar": "N"}),
        Option(
            "--pair-timeout",
            "seconds for one measurement (default 120)",
            {"type": float, "default": 120.0, "metavar": "S"},
        ),
        Option(
            "--resume",
            "go on with the measurements of a run that was broken off, in this folder or file of its own",
            {"metavar": "PATH"},
        ),
        Option(
            "--meter",
            f"what measures: {', '.join(METERS)} (default: by the nodes' devices)",
            {"choices": METERS},
        ),
        Option(
            "--meter-program",
            "its path on the nodes, where it is in no usual place",
            {"default": "", "metavar": "PATH"},
        ),
        Option("--meter-options", "further words for its command line", {"default": "", "metavar": "WORDS"}),
        Option(
            "--meter-env",
            "what to put into its environment, e.g. 'NCCL_ALGO=Ring'",
            {"default": "", "metavar": "K=V …"},
        ),
        Option(
            "--meter-size",
            "bytes of a message, e.g. 8G (default: by the instance type)",
            {"default": "", "metavar": "SIZE"},
        ),
        Option(
            "--collective",
            "which collective nccl-tests run (default all_reduce)",
            {"default": "all_reduce", "metavar": "NAME"},
        ),
        Option(
            "--ranks-per-node", "how many ranks on each node (default: one for each GPU)", {"type": int, "metavar": "N"}
        ),
        Option(
            "--launcher",
            f"what starts it: {', '.join(LAUNCHERS)} (default: by the cluster)",
            {"choices": LAUNCHERS},
        ),
        Option(
            "--mpirun-options",
            "further words for mpirun, e.g. '--mca btl_tcp_if_include eth0'",
            {"default": "", "metavar": "WORDS"},
        ),
        Option("--baseline", "compare with the site's own figures of this file", {"metavar": "FILE"}),
        Option("--save-baseline", "keep this run's figures in a file, for --baseline", {"metavar": "FILE"}),
    ),
}


def seconds_of(budget: str) -> float:
    """The seconds of `--pairs-budget`. Raises ValueError."""
    duration = re.fullmatch(r"(\d{1,6})([smh])", budget)
    if not duration or not int(duration[1]):
        raise ValueError(f"--pairs-budget is {budget!r:.40}; expected a time as 90s, 20m or 2h")
    return int(duration[1]) * {"s": 1.0, "m": 60.0, "h": 3600.0}[duration[2]]
