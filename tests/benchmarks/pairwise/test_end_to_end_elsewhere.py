"""`pytest --cluster X -m perf` with ranks started by Slurm and by mpirun, and with a node that dies during the run."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.benchmarks.pairwise.typed import (
    NAMES,
    NCCL_PORTS,
    QUICK_IPERF,
    QUICK_NCCL,
    run,
    wires,
)
from tests.testbed.cluster import testbed
from tests.testbed.needs import needs_cluster, needs_iperf3, needs_openmpi, needs_slurm
from tests.testbed.node import healthy_cpu, with_whole_machine
from tests.testbed.ranks import with_all_reduce
from tests.testbed.slurm import CONTROLLER, slurm
from tests.testbed.slurm_version import IN_TURN, SlurmVersion


@needs_cluster
@needs_iperf3
def test_a_node_that_dies_meanwhile_is_named_and_the_others_are_measured(tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    with testbed(dict.fromkeys(NAMES[:6], with_whole_machine(healthy_cpu()))) as bed, wires(bed, NAMES[:6]):

        def die() -> None:
            journal = recording / "pairwise.jsonl"
            until = time.monotonic() + 600
            while time.monotonic() < until and not (journal.exists() and journal.read_text().count("\n") > 3):
                time.sleep(0.1)
            bed.stop("n5")

        killer = threading.Thread(target=die)
        killer.start()
        outcome = run(
            bed,
            tmp_path,
            "--cluster",
            "ssh:n[1-6]",
            *QUICK_IPERF,
            "--pair-timeout",
            "10",
            "--connect-timeout",
            "3",
            "--record",
            str(recording),
        )
        killer.join()
    assert outcome.failed("not_a_straggler") == ["n5"], outcome.output
    others = [verdict for node, verdict in outcome.verdicts("not_a_straggler").items() if node != "n5"]
    assert set(others) <= {Verdict.PASS, Verdict.CONCERN}, outcome.output


@needs_slurm
@needs_openmpi
@pytest.mark.parametrize("version", IN_TURN)
def test_slurm_starts_the_ranks_and_the_slow_node_is_named(tmp_path: Path, version: SlurmVersion) -> None:
    names = tuple(f"gpu00{number}" for number in range(1, 7))
    with slurm(dict.fromkeys(names, with_all_reduce(healthy_cpu())), version=version) as bed:
        with wires(bed.bed, names, slow=["gpu004"], ports=NCCL_PORTS):
            where = ("--cluster", "slurm:gpu", "--via", f"ssh:{CONTROLLER}")
            ran = run(bed.bed, tmp_path, *where, *QUICK_NCCL, "--groups", "all")
        left = bed.output_of("squeue", "-h", "-t", "PD,R", "-o", "%A").split()
        again = run(bed.bed, tmp_path, "--cluster", f"replay:{ran.recording}")
    assert ran.failed("not_a_straggler") == ["gpu004"], ran.output
    assert ran.verdicts("pairwise_groups") == {
        name: Verdict.NOT_APPLICABLE if name == "gpu004" else Verdict.PASS for name in names
    }, ran.output
    assert "groups: measuring 5 nodes together, gpu[001-003,005-006]" in ran.output
    assert left == []
    assert again.verdicts("pairwise_groups") == ran.verdicts("pairwise_groups")


@needs_cluster
@needs_openmpi
def test_mpirun_starts_the_ranks_and_a_node_that_reckons_wrong_is_named(tmp_path: Path) -> None:
    images = {name: with_all_reduce(healthy_cpu()) for name in NAMES[:4]}
    with testbed(images) as bed, wires(bed, NAMES[:4], ports=NCCL_PORTS):
        bed.let_nodes_log_in_to_each_other()
        (bed.nodes["n2"].root / "etc/testbed-corrupts").write_text("")
        ran = run(bed, tmp_path, "--cluster", "ssh:n[1-4]", *QUICK_NCCL)
    assert ran.failed("pairwise_correct") == ["n2"], ran.output
    assert ran.failed("not_a_straggler") == ["n2"], ran.output
