"""`pytest --cluster X -m perf` as typed by a user: real sockets, sshds, Slurm and mpirun, slowed by tc."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from clusterproof.plugins.benchmarks.pairwise.journal import read
from clusterproof.plugins.core.verdict import Verdict
from tests.benchmarks.pairwise.typed import (
    CHECKS,
    LIBFABRIC,
    NAMES,
    OWN_TEST,
    QUICK_IPERF,
    SLOW_PORT,
    interrupted,
    run,
    wires,
)
from tests.builders.runs import Runs
from tests.testbed.cluster import Testbed, testbed
from tests.testbed.needs import needs_cluster, needs_fi_pingpong, needs_iperf3
from tests.testbed.node import healthy_cpu
from tests.testbed.pingpong import with_fi_pingpong

SIGNALS = [
    pytest.param(stop, id=stop.name, marks=pytest.mark.in_turn(stop.name)) for stop in (signal.SIGINT, signal.SIGTERM)
]


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with testbed(dict.fromkeys(NAMES, with_fi_pingpong(healthy_cpu()))) as running:
        yield running


@needs_cluster
@needs_iperf3
class TestOverSsh:
    def test_a_slow_node_is_named_and_nobody_else(self, bed: Testbed, tmp_path: Path) -> None:
        figures, own = tmp_path / "figures.json", tmp_path / "test_own.py"
        own.write_text(OWN_TEST)
        with wires(bed, NAMES, slow=["n3"]):
            options = (*QUICK_IPERF, "--save-baseline", str(figures))
            ran = run(bed, tmp_path, "--cluster", "ssh:n[1-8]", *options, str(own))
        assert "::test_all_were_measured PASSED" in ran.output, ran.output
        assert ran.failed("not_a_straggler") == ["n3"], ran.output
        assert ran.failed("pairwise_busbw") == [], ran.output
        message = next(
            result.message for result in ran.results if (result.check, result.node) == ("network.not_a_straggler", "n3")
        )
        assert re.match(r"\d\d(\.\d)? % slower than normal \(\d.*, \d+ measurements with \d partners", message)
        assert "pairs: round 1 of at most 8" in ran.output
        again = run(bed, tmp_path, "--cluster", f"replay:{ran.recording}")
        assert again.verdicts("not_a_straggler") == ran.verdicts("not_a_straggler")
        assert again.verdicts("pairwise_busbw") == ran.verdicts("pairwise_busbw")
        baseline = json.loads(figures.read_text())
        baseline["figures"][0]["busbw_gb_per_s"] *= 2
        figures.write_text(json.dumps(baseline))
        under = run(bed, tmp_path, "--cluster", f"replay:{ran.recording}", "--baseline", str(figures))
        assert set(under.verdicts("pairwise_busbw").values()) == {Verdict.FAIL}, under.output
        assert under.failed("not_a_straggler") == [], "where all pairs are under the floor no node is flagged"

    def test_a_slow_link_is_distinguished_from_its_nodes(self, bed: Testbed, tmp_path: Path) -> None:
        with wires(bed, NAMES[:6], bare=["n2", "n6"]), bed.slow_link("n2", "n6", SLOW_PORT):
            ran = run(bed, tmp_path, "--cluster", "ssh:n[1-6]", *QUICK_IPERF, "--pairs", "full")
        assert ran.failed("pairwise_busbw") == ["n2~n6"], ran.output
        assert ran.failed("not_a_straggler") == [], ran.output

    def test_a_slow_group_is_distinguished_from_its_nodes(self, bed: Testbed, tmp_path: Path) -> None:
        cluster = tmp_path / "cluster.toml"
        groups = {"a": "n[1-3]", "b": "n[4-6]", "c": "n[7-8]"}
        cluster.write_text("".join(f'[[group]]\nname = "{name}"\nnodes = "{of}"\n' for name, of in groups.items()))
        with wires(bed, NAMES, slow=["n1", "n2", "n3"]):
            ran = run(bed, tmp_path, "--cluster", str(cluster), *QUICK_IPERF, "--pairs", "full")
        assert ran.failed("not_a_straggler") == [], ran.output
        concerned = {
            result.node
            for result in ran.results
            for finding in result.findings
            if result.check == "network.not_a_straggler"
            and finding.verdict is Verdict.CONCERN
            and finding.message.startswith("a (n[1-3]) is")
        }
        assert concerned == {"n1", "n2", "n3"}, ran.output

    def test_a_pair_that_is_named_is_measured_and_no_other_of_any_type(self, bed: Testbed, tmp_path: Path) -> None:
        cluster = tmp_path / "cluster.toml"
        groups = {"p5.48xlarge": "n[1-3]", "p5en.48xlarge": "n[4-6]"}
        cluster.write_text(
            "".join(
                f'[[group]]\nname = "{kind}"\nnodes = "{nodes}"\ninstance_type = "{kind}"\n'
                for kind, nodes in groups.items()
            )
        )
        ran = run(bed, tmp_path, "--cluster", str(cluster), *QUICK_IPERF, "--pairs", "n2~n3")
        assert [file.name for file in ran.recording.glob("pairwise*.jsonl")] == ["pairwise.jsonl"], ran.output
        assert {str(measurement.pair) for measurement in read(ran.recording / "pairwise.jsonl").measurements} == {
            "n2~n3"
        }
        others = {
            name: verdict for name, verdict in ran.verdicts("not_a_straggler").items() if name not in ("n2", "n3")
        }
        assert set(others.values()) == {Verdict.NOT_APPLICABLE}

    def test_what_was_broken_off_is_gone_on_with(self, bed: Testbed, tmp_path: Path) -> None:
        options = ("--cluster", "ssh:n[1-4]", *QUICK_IPERF, "--pairs-seed", "5")
        with wires(bed, NAMES[:4]):
            self.goes_on(bed, tmp_path, options)

    def goes_on(self, bed: Testbed, tmp_path: Path, options: Sequence[str]) -> None:
        stopped = run(bed, tmp_path, *options, "--pairs-budget", "4s")
        assert "left out" in stopped.output or read(stopped.recording / "pairwise.jsonl").ended
        before = read(stopped.recording / "pairwise.jsonl").measurements
        assert before
        whole = run(bed, tmp_path, *options, "--resume", str(stopped.recording))
        after = read(stopped.recording / "pairwise.jsonl").measurements
        assert after[: len(before)] == before
        assert len({(measurement.pair, measurement.round) for measurement in after}) == len(after)
        assert set(whole.verdicts("not_a_straggler").values()) == {Verdict.PASS}, whole.output

    @pytest.mark.parametrize("stop", SIGNALS)
    def test_a_run_that_a_person_interrupts_flags_no_node_when_it_goes_on(
        self, bed: Testbed, tmp_path: Path, stop: signal.Signals
    ) -> None:
        options = ("--cluster", "ssh:n[1-4]", "--meter", "iperf3", "--meter-options=-t 2 -O 0", "--pairs-at-once", "2")
        recording = tmp_path / "recording"
        with wires(bed, NAMES[:4]):
            output = interrupted(bed, recording, stop, *options)
            kept = read(recording / "pairwise.jsonl")
            assert {measurement.reading.problem for measurement in kept.measurements} == {""}
            assert kept.measurements
            (again,) = re.findall(r"to go on: (pytest .*)", output)
            ran = run(bed, tmp_path, *shlex.split(again)[1:], "--record", str(recording))
        assert set(ran.verdicts("not_a_straggler").values()) == {Verdict.PASS}, ran.output
        after = read(recording / "pairwise.jsonl").measurements
        assert after[: len(kept.measurements)] == kept.measurements

    @needs_fi_pingpong
    def test_libfabric_measures_too_and_a_worker_of_xdist_reads_what_was_measured(
        self, bed: Testbed, tmp_path: Path
    ) -> None:
        with wires(bed, NAMES[:6], slow=["n4"], ports=("20mbit", "4mbit")):  # slow in one of two directions
            ran = run(bed, tmp_path, "--cluster", "ssh:n[1-6]", *LIBFABRIC, "-n", "1")
        assert ran.failed("not_a_straggler") == ["n4"], ran.output


def test_options_that_make_no_sense_are_refused_in_one_line(runs: Runs) -> None:
    for options, message in (
        (("--pairs", "n1~"), "--pairs is 'n1~'; expected quick, full, or A~B"),
        (("--groups", "2"), "--groups is '2'; expected doubling, all, or sizes of 3 nodes and more, as 4,16,all"),
        (("--groups", "all,some"), "--groups is 'all,some'; expected doubling, all, or sizes of 3 nodes and more"),
        (("--pairs-budget", "soon"), "--pairs-budget is 'soon'; expected a time as 90s, 20m or 2h"),
        (("--meter-size", "big"), "--meter-size is 'big'; expected bytes, or a number with K, M or G"),
        (("--meter-env", "X"), "--meter-env has 'X'; expected K=V"),
        (("--mpirun-options", "it's"), '--mpirun-options is "it\'s": No closing quotation; expected words'),
        (("--srun-options", "it's"), '--srun-options is "it\'s": No closing quotation; expected words'),
        (("--pairs-at-once", "0"), "--pairs-at-once is 0; expected at least 1"),
    ):
        ran = runs.run("--cluster", "demo", *options, *CHECKS)
        assert ran.ret == 4
        assert message in ran.stderr.str()
