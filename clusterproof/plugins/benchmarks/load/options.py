"""The collectors that load the hardware, their time limits, and the user's options for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from clusterproof.plugins.agent.program import END_S, SEND_S
from clusterproof.plugins.catalog import exact_kinds_setting

# Seconds for each, in the order in which a node runs them. DCGM needs idle GPUs, and matrix products heat them.
SECONDS: Mapping[str, float] = {
    "dcgm_diag": 900.0,
    "gpu_bandwidth": 300.0,
    "node_busbw": 300.0,
    "gpu_gemm": 180.0,
    "gpu_exact": 240.0,
    "exact_collective": 180.0,
    "exact_step": 180.0,
    "cpu_exact": 180.0,
    "stress_ng": 120.0,
    "nccom": 600.0,
    "efa_loopback": 480.0,
    "fs_bandwidth": 120.0,
}
DCGM_SECONDS: Mapping[int, float] = {1: 180.0, 2: 900.0, 3: 2400.0, 4: 9000.0}
EXACT_S = 60.0  # the part of it spent on the products themselves
STRESS = "stress_ng"  # the user sets its duration, added to the time here
TAKES_TURNS = "fs_bandwidth"  # measures what nodes share: only few of them run at a time
COLLECTORS = frozenset(SECONDS)
# The function of each, as MODULE:FUNCTION of this package.
FUNCTIONS: Mapping[str, str] = {
    **{name: f"programs:{name}" for name in ("dcgm_diag", "node_busbw", "nccom")},
    **{name: f"{name}:{name}" for name in ("efa_loopback", "fs_bandwidth")},
    **{name: f"gpu_speed:{name}" for name in ("gpu_bandwidth", "gpu_gemm")},
    STRESS: f"stress:{STRESS}",
    **{name: f"exact:{name}" for name in ("gpu_exact", "exact_collective", "exact_step", "cpu_exact")},
}


@dataclass(frozen=True)
class LoadOptions:
    """How nodes are loaded; 0, empty and None mean the default."""

    host_root: str = "/"
    sudo: bool = False
    dcgm_level: int = 2
    dcgm_parameters: str = ""  # argument of dcgmi's -p
    seconds: Mapping[str, float] = field(default_factory=dict)  # by collector; "" for all of them
    folders: str = ""  # on the nodes, separated by `:`, that contain the programs
    torch_python: str = ""  # on the nodes
    fs_folder: str = ""  # on the nodes: scratch files are written there and removed
    fs_mib: int = 4096
    fs_at_once: int = 4  # nodes
    exact_s: float = EXACT_S  # for exact products on GPUs
    stress_s: int = 0  # for stress-ng
    max_answer_chars: int = 0  # characters of an answer that its connection carries; 0: unlimited

    def deadline_s(self, collector: str) -> float:
        """Seconds for one collector on one node."""
        own = DCGM_SECONDS[self.dcgm_level] if collector == "dcgm_diag" else SECONDS[collector]
        own += self.exact_s - EXACT_S if collector == "gpu_exact" else 0.0
        own += self.stress_s if collector == STRESS else 0.0
        return self.seconds.get(collector) or self.seconds.get("") or own

    def whole_s(self, collectors: Iterable[str]) -> float:
        """Seconds on the node for these, one after another, including sending."""
        return sum(self.deadline_s(collector) + END_S for collector in collectors) + SEND_S

    def requested(self, collectors: Iterable[str]) -> frozenset[str]:
        """Those collectors that load the hardware, except those that lack a required folder or duration."""
        chosen = {TAKES_TURNS: self.fs_folder, STRESS: self.stress_s}
        return frozenset(collectors) & COLLECTORS - {name for name, choice in chosen.items() if not choice}

    @property
    def settings(self) -> dict[str, str]:
        """The settings that are passed to the collectors."""
        values = {
            "dcgm_level": str(self.dcgm_level),
            "dcgm_parameters": self.dcgm_parameters,
            "folders": self.folders,
            "torch_python": self.torch_python,
            "fs_folder": self.fs_folder,
            "fs_mib": str(self.fs_mib),
            "exact_s": str(self.exact_s),
            "stress_s": str(self.stress_s or ""),
            "exact_kinds": exact_kinds_setting(),
        }
        return {name: value for name, value in values.items() if value}


MAX_PARAMETERS, MAX_PARAMETER_CHARS = 100, 99  # DCGM 3's limits; DCGM 4 allows longer ones
_PARAMETER = re.compile(r"(?P<name>[A-Za-z]\w*(?:\.[A-Za-z]\w*){1,2})=(?P<value>[\w.,:/+-]+)", re.ASCII)
DURATION = ".test_duration"
BESIDE_S = 30  # overhead of a measurement beyond its requested duration
BESIDE_EXACT_S = 60  # of exact products: loading PyTorch, and what is reserved of a run to end it and to report


def dcgm_parameters(text: str) -> dict[str, str]:
    """Parse what `dcgmi diag -p` should set: `pcie.test_duration` to its value. Raises ValueError with the error."""
    parameters: dict[str, str] = {}
    for word in text.split(";") if text else ():
        match = _PARAMETER.fullmatch(word)
        if not match:
            raise ValueError(f"has {word!r:.60}; expected TEST.NAME=VALUE;…, as diagnostic.test_duration=300")
        if len(word) > MAX_PARAMETER_CHARS:
            raise ValueError(f"has {word!r:.60} of {len(word)} characters; expected at most {MAX_PARAMETER_CHARS}")
        if match["name"].lower() in parameters:
            raise ValueError(f"has {match['name'].lower()} twice; expected it once")
        parameters[match["name"].lower()] = match["value"]
    if len(parameters) > MAX_PARAMETERS:
        raise ValueError(f"has {len(parameters)} parameters; expected at most {MAX_PARAMETERS}")
    return parameters


def dcgm_tests_s(parameters: Mapping[str, str]) -> float:
    """The total seconds of DCGM's tests with these parameters. Raises ValueError."""
    whole_s = 0.0
    for name, value in parameters.items():
        if name.endswith(DURATION):
            if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", value, re.ASCII):
                raise ValueError(f"has {name} {value!r:.60}; expected seconds")
            whole_s += float(value)
    return whole_s


def require_time(level: int, parameters: str, stress_s: int, exact_s: float, seconds: Mapping[str, float]) -> None:
    """Reject what dcgmi would reject, and what these deadlines cut short. Raises ValueError naming the option."""
    given = LoadOptions(dcgm_level=level, stress_s=stress_s, exact_s=exact_s, seconds=seconds)
    try:
        tests_s = dcgm_tests_s(dcgm_parameters(parameters))
    except ValueError as why:
        raise ValueError(f"--dcgm-parameters {why}") from None
    for flag, requested_s, collector, beside_s in (
        ("--dcgm-parameters", tests_s, "dcgm_diag", BESIDE_S),
        ("--stress-s", stress_s, STRESS, BESIDE_S),
        ("--exact-s", 0 if exact_s == EXACT_S else exact_s, "gpu_exact", BESIDE_EXACT_S),
    ):
        killed_after_s = given.deadline_s(collector)
        if requested_s and requested_s + beside_s > killed_after_s:
            raise ValueError(
                f"{flag} asks for {requested_s:g} s, and {collector} is killed after {killed_after_s:g}; "
                f"expected --load-timeout {collector}={requested_s + beside_s:g} or more"
            )
