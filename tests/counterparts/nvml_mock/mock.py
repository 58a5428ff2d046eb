"""Runs the probe against NVIDIA's mock of NVML, and injects faults into it.

The mock is the Go package pkg/gpu/mocknvml/bridge of NVIDIA/k8s-test-infra, built as a C shared library, with
nvml-mock-ctl of the same repository. No registry has it: Go's module proxy answers 403 for that module.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusterproof.plugins.core.evidence import NodeEvidence
from tests.builders.probed import PATIENT, probe
from tests.testbed.compiled import shared_library

VARIABLE = "NVML_MOCK"
FILES = ("libnvidia-ml.so.1", "nvml-mock-ctl", "mock-nvml-config-h100.yaml")
OVERRIDES = "overrides.yaml"  # written by nvml-mock-ctl and read by the library
COUNTING_SINCE = "1700000000"  # seconds since 1970 when the mock's NVLink error counters began
NOT_SUPPORTED = 3


@dataclass(frozen=True)
class Profile:
    """One of the mock's machines: its number of GPUs, and each one's number of active links."""

    name: str
    gpus: int
    nvlinks: int


PROFILES = (
    Profile("a100", 8, 12),
    Profile("h100", 8, 18),
    Profile("b200", 8, 0),  # by its own account it has no NVSwitch
    Profile("gb200", 8, 18),
    Profile("gb300", 8, 18),
    Profile("l40s", 8, 0),
    Profile("t4", 4, 0),
)


def folder() -> Path:
    """The mock's folder."""
    return Path(os.environ.get(VARIABLE, "")).absolute()


def needs_mock() -> pytest.MarkDecorator:
    """Skip a test without the mock, and say what to set."""
    is_there = bool(os.environ.get(VARIABLE)) and all((folder() / name).exists() for name in FILES)
    reason = (
        f"set {VARIABLE} to a folder with libnvidia-ml.so.1, nvml-mock-ctl and mock-nvml-config-*.yaml, built from "
    )
    reason += "NVIDIA/k8s-test-infra: no registry has it (Go's module proxy refuses it)"
    return pytest.mark.skipif(not is_there, reason=reason)


def probed_mock(profile: str, scratch: Path, monkeypatch: pytest.MonkeyPatch, *faults: str) -> NodeEvidence:
    """The probe's report on the mock's machine, with these faults in nvml-mock-ctl's words."""
    inject(profile, scratch, *faults)
    for name, value in environment(profile, scratch).items():
        monkeypatch.setenv(name, value)
    return probe(["nvml"], PATIENT)


def inject(profile: str, scratch: Path, *faults: str) -> None:
    """Inject these faults, also for programs that have the library loaded."""
    for fault in faults:
        command, *rest = fault.split()
        files: list[str | Path] = ["--file", scratch / OVERRIDES, "--config", config(profile)]
        subprocess.run([folder() / "nvml-mock-ctl", command, *files, *rest], check=True, capture_output=True)


def config(profile: str) -> Path:
    """The file of a machine."""
    return folder() / f"mock-nvml-config-{profile}.yaml"


def environment(profile: str, scratch: Path) -> dict[str, str]:
    """The environment of programs that should load the mock."""
    return {
        "MOCK_NVML_CONFIG": str(config(profile)),
        "MOCK_NVML_OVERRIDES": str(scratch / OVERRIDES),
        "MOCK_NVML_EPOCH": COUNTING_SINCE,
        "LD_LIBRARY_PATH": str(folder()),
        "LD_PRELOAD": str(stub(scratch)),
    }


def stub(scratch: Path) -> Path:
    """A library with the functions that the mock leaves undefined, without which it does not load."""
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", folder() / FILES[0]], check=True, capture_output=True, text=True
    )
    names = [line.split()[-1] for line in symbols.stdout.splitlines() if " nvml" in line]
    source, built = scratch / "stub.c", scratch / "libstub.so"
    source.write_text("".join(f"int {name}(void) {{ return {NOT_SUPPORTED}; }}\n" for name in names))
    built.write_bytes(shared_library(source, built.name))
    return built
