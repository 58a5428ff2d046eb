"""The collective meters: what each rank runs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.benchmarks.meters import MeterSettings, Output, nccl_tests, nccom_test
from clusterproof.plugins.benchmarks.meters.selection import METERS, meter_for
from clusterproof.plugins.evidence.pairs import Failure
from tests.testbed import compiled
from tests.testbed.needs import needs_openmpi

GIB = 2**30
OPT = "/nowhere/opt/"  # replaces this machine's, where they may be installed


@needs_openmpi
def test_a_rank_prints_with_which_mpi_its_program_is_linked(tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "testbed" / "tools" / "all_reduce.c"
    (tmp_path / "alone.c").write_text("int main(void) { return 0; }\n")
    for made, pattern in (
        (compiled.program(source, compiler="mpicc"), r"^# MPI library: libmpi\.so\.\d+$"),
        (compiled.program(tmp_path / "alone.c"), r"^# MPI library: $"),
        (b"#!/bin/sh\n", r"\A(?!.*MPI library)"),
    ):
        (tmp_path / "all_reduce_perf").write_bytes(made)
        (tmp_path / "all_reduce_perf").chmod(0o755)
        output = sh(nccl_tests.ranks(MeterSettings(size_bytes=1024)), str(tmp_path), SLURM_LOCALID="0").stdout
        assert re.search(pattern, output, re.MULTILINE | re.DOTALL), output
    assert "MPI library" not in sh(nccl_tests.ranks(MeterSettings()), str(tmp_path), SLURM_LOCALID="1").stdout


def sh(script: str, path: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": f"{path}:/usr/bin:/bin", **environment}
    return subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False, env=variables)


def program(
    folder: Path, name: str, text: str = 'printf "%s\\n" "$0" "$@"; env | grep -E "^(NCCL|LC_ALL|NEURON)"\n'
) -> Path:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}")
    file.chmod(0o755)
    return file


@pytest.mark.long
@pytest.mark.parametrize("chosen", ["", "own_perf"])
def test_what_a_person_types_runs_the_program_of_a_rank_as_the_rank_does(tmp_path: Path, chosen: str) -> None:
    executable = program(tmp_path, chosen or "all_reduce_perf")
    settings = MeterSettings(
        size_bytes=8 * GIB,
        options="-d 'b f16'",
        program=str(executable) if chosen else "",
        environment={"NCCL_PROTO": "Simple LL"},
    )
    typed = sh(nccl_tests.command(settings, "env", ("a", "b")), str(tmp_path)).stdout
    ran = sh(nccl_tests.ranks(settings), str(tmp_path)).stdout
    assert sorted(typed.splitlines()) == sorted(ran.splitlines())


@pytest.mark.long
def test_the_command_of_a_rank_measures_one_large_size_with_checked_results(tmp_path: Path) -> None:
    executable = program(tmp_path, "all_reduce_perf")
    ran = sh(nccl_tests.ranks(MeterSettings(size_bytes=8 * GIB, options="-d 'b f16'")), str(tmp_path))
    lines = ran.stdout.splitlines()
    size = str(8 * GIB)
    assert lines[:17] == [
        *(str(executable), "-b", size, "-e", size, "-f", "2", "-g", "1", "-c", "1"),
        *("-n", "20", "-w", "5", "-d", "b f16"),
    ]
    assert {"NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET", "LC_ALL=C"} <= set(lines)


@pytest.mark.long
def test_a_users_environment_comes_before_the_meters_own(tmp_path: Path) -> None:
    program(tmp_path, "all_gather_perf")
    settings = MeterSettings(collective="all_gather", environment={"NCCL_DEBUG": "it's $HOME"})
    assert "NCCL_DEBUG=it's $HOME" in sh(nccl_tests.ranks(settings), str(tmp_path)).stdout


def test_the_default_size_is_never_below_1_gib() -> None:
    assert f" -b {GIB} -e {GIB} " in nccl_tests.ranks(MeterSettings())
    assert f" -b {GIB} -e {GIB} " in nccom_test.ranks(MeterSettings())


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "command", "message"),
    [
        (
            "nccl-tests",
            nccl_tests.ranks,
            f"all_reduce_perf is not installed: looked on PATH, in {OPT}nccl-tests/build, in",
        ),
        (
            "nccom-test",
            nccom_test.ranks,
            f"nccom-test is not installed: looked on PATH, in {OPT}aws/neuron/bin; install",
        ),
        (
            "nccl-tests",
            lambda _: nccl_tests.ranks(MeterSettings(program="/nowhere/it's")),
            "/nowhere/it's is not a program here; install nccl-tests, built with MPI=1",
        ),
    ],
)
def test_a_program_that_is_not_there_ends_with_127_and_is_a_problem_that_says_what_to_do(
    name: str, command: Any, message: str, tmp_path: Path
) -> None:
    ran = sh(command(MeterSettings()).replace("/opt/", OPT), str(tmp_path))
    assert (ran.returncode, ran.stdout) == (127, "")
    read = METERS[name].read(MeterSettings(), (Output(ran.stderr, ran.returncode),))
    host = os.uname().nodename
    assert read.problem.startswith(f"it ended with 127; clusterproof: {host}: {message}")
    assert (read.culprit, read.failure) == (host, Failure.NO_PROGRAM)


@pytest.mark.parametrize("meter", [nccl_tests, nccom_test])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (MeterSettings(collective="all;reduce"), "'all;reduce' is not a collective; expected one of all_reduce"),
        (MeterSettings(options="-x 'open"), "expected words as in a shell"),
        (MeterSettings(environment={"A B": "1"}), "'A B' is not the name of a variable"),
    ],
)
def test_settings_that_make_no_command_are_one_clear_error(meter: Any, settings: MeterSettings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        meter.ranks(settings)


@pytest.mark.long
def test_the_first_rank_starts_nccom_test_on_both_nodes_and_the_others_end(tmp_path: Path) -> None:
    executable = program(tmp_path, "nccom-test")
    script = nccom_test.ranks(MeterSettings(ranks_per_node=32, collective="all_gather"))
    ran = sh(script, str(tmp_path), CLUSTERPROOF_HOSTS="10.0.0.1 10.0.0.2", SLURM_PROCID="0")
    options = "-r 64 -N 2 -b 1073741824 -e 1073741824 -f 2 -n 20 -w 5 -d fp32 --check --non-interactive allg"
    expected = [
        f"nccom-test {options} --hosts 10.0.0.1 10.0.0.2",
        str(executable),
        *options.split(),
        "--hosts",
        "10.0.0.1",
        "10.0.0.2",
    ]
    assert ran.stdout.splitlines()[: len(expected)] == expected
    assert "NEURON_RT_ROOT_COMM_ID=10.0.0.1:45654" in ran.stdout
    other = sh(script, str(tmp_path), CLUSTERPROOF_HOSTS="10.0.0.1 10.0.0.2", SLURM_PROCID="1")
    assert (other.returncode, other.stdout) == (0, "")


@pytest.mark.parametrize(
    ("gpus", "neuron_devices", "name"), [(8, 0, "nccl-tests"), (0, 16, "nccom-test"), (0, 0, "iperf3")]
)
def test_the_meter_follows_from_what_a_node_has(gpus: int, neuron_devices: int, name: str) -> None:
    assert meter_for(gpus, neuron_devices) is METERS[name]
