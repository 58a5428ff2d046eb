"""`--check-installation`: what Slurm's scripts can and cannot evaluate on a node, without changing it."""

from __future__ import annotations

import sys

import pytest

from clusterproof.integrations.slurm.installation import findings
from clusterproof.integrations.slurm.installation_lines import (
    InstallationLine,
    LineStatus,
    Section,
    count,
    fine,
    rendered,
    to_fix,
    unknown,
)
from clusterproof.integrations.slurm.rehearsal import Evaluated, Rehearsal
from clusterproof.integrations.slurm.settings import Settings
from clusterproof.plugins.evaluation.index import FILE as INDEX
from tests.faults import BY_NAME
from tests.integrations.slurm.installation import TIMEOUT_S, marked, output_of, run_script
from tests.integrations.slurm.on_node import node
from tests.integrations.slurm.scripts import BUDGET, DRAIN, NAMES, SCRIPTS, STATE, eventually
from tests.testbed.image import ABSENT, File, Folder, NodeImage
from tests.testbed.needs import needs_nodes
from tests.testbed.node import Node, healthy_cpu, healthy_p5, with_file, with_stuck_nvml

UNKNOWN_TYPE = ("gpu.fabric_manager", "gpu.gpu_count", "network.efa_count")  # of a machine in no catalogue
NOT_EVALUATED = ", ".join(UNKNOWN_TYPE)
DISABLED = "\n".join(f'[disabled."{name}"]\nreason = "no GPU"\nuntil = 9999-12-31' for name in UNKNOWN_TYPE)
OTHERS_WRITE = (f"/{STATE}", Folder(0o777))


def without_slurm(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("slurmctld ")]


@needs_nodes
def test_a_healthy_node_shows_what_is_evaluated_on_it_and_how_long_that_takes() -> None:
    with node(healthy_p5(), DRAIN) as running:
        ran = run_script(running)
    text = output_of(ran)
    assert without_slurm(marked(ran, "!")) == []
    assert marked(ran, "?") == []
    for message in (
        "mode drain: a fail drains the node\n",
        "set deadline_s = 8\n",
        'by default at_deadline = "log", reuse_s = 60, ',
        "file /etc/clusterproof/slurm.toml\n",
        "instance type p5.48xlarge\n",
        " s of 8 s: ",
        " s of 40 s: ",
        "not applicable network.ib_count: this node's fabric is EFA\n",
        "a drained node is resumed once all that is evaluated here passes in a health check\n",
        "/var/lib/clusterproof/slurm can be used\n",
    ):
        assert message in text, message
    evaluated = text.partition("\nevaluated ")[2].partition("\n")[0].split()
    of_prolog = text.partition("\nevaluated (prolog) ")[2].partition("\n")[0].split()
    assert {"gpu.no_xid", "host.job_leftovers"} <= set(evaluated)
    assert {"gpu.gpu_count", "gpu.nvlink_active"} <= set(of_prolog)


@needs_nodes
@pytest.mark.parametrize("script", NAMES.values())
def test_each_script_has_the_option_and_it_leaves_nothing_on_the_node(script: str) -> None:
    with node(BY_NAME["a GPU that is lost"].put(healthy_p5()), DRAIN) as running:
        before = written(running)
        ran = run_script(running, "gpu001", script)
        after = written(running)
    assert ran.returncode == 1
    assert after == before


def written(running: Node) -> set[str]:
    """What has been written on a node since its creation, except Python's own caches."""
    return {line for line in running.written() if "__pycache__" not in line and "/run/" not in line}


CASES: dict[str, tuple[NodeImage, str, str]] = {
    "a GPU that is lost": (
        BY_NAME["a GPU that is lost"].put(healthy_p5()),
        DRAIN,
        "fails gpu.gpu_answers: GPU 3: the driver says GPU_IS_LOST; expected an answer: this drains at the next job",
    ),
    "a GPU that is lost, where it observes": (
        BY_NAME["a GPU that is lost"].put(healthy_p5()),
        "",
        "fails gpu.gpu_answers: GPU 3: the driver says GPU_IS_LOST; expected an answer: this would drain",
    ),
    "a state folder of everybody's": (
        with_file(healthy_p5(), *OTHERS_WRITE),
        DRAIN,
        "/var/lib/clusterproof/slurm may be written by others than root; expected a folder that only root writes: ",
    ),
    "a setting that means nothing": (
        healthy_p5(),
        'mode = "drian"\n',
        "mode is 'drian' (did you mean drain?); expected observe, drain, off; until then the scripts do nothing",
    ),
    "settings of everybody's": (
        with_file(healthy_p5(), "/etc/clusterproof", Folder(0o777)),
        DRAIN,
        "/etc/clusterproof may be written by others than root; expected a file that only root writes; until then the ",
    ),
    "a policy of everybody's": (
        with_file(healthy_p5(), "/etc/policy.toml", File("", 0o666)),
        f'{DRAIN}policy = "/etc/policy.toml"\n',
        "prolog no verdict: /etc/policy.toml may be written by others than root; expected a file that only root writes",
    ),
    "a policy that is not there": (
        healthy_p5(),
        f'{DRAIN}policy = "/etc/none.toml"\n',
        "no verdict: ERROR: '/etc/none.toml'",
    ),
}


@needs_nodes
@pytest.mark.parametrize("case", CASES)
def test_what_is_to_be_mended_has_a_mark(case: str) -> None:
    image, toml, expected = CASES[case]
    with node(image, toml) as running:
        ran = run_script(running)
    assert ran.returncode == 1
    assert [line for line in marked(ran, "!") if expected in line], output_of(ran)


@needs_nodes
def test_an_index_that_is_not_of_the_checks_is_reported_as_it_costs_time() -> None:
    image = with_file(healthy_p5(), str(INDEX), '{"of": 0, "checks": {\n}}\n')
    with node(image, DRAIN, is_first_run=True) as running:
        ran = run_script(running)
    why = "checks.json is not of the checks that lie beside it; every check is loaded, which takes longer"
    assert output_of(ran).count(f"! index {why}; expected an index of these checks") == 1
    assert ran.returncode == 1


@needs_nodes
@pytest.mark.parametrize(("toml", "begin"), [(DRAIN, "a drained node"), ("", "in drain mode a drained node")])
def test_for_a_node_that_can_never_be_complete_it_says_that_nobody_would_resume_it(toml: str, begin: str) -> None:
    with node(healthy_cpu(), toml) as running:
        ran = run_script(running)
    message = (
        f"{begin} is resumed only once every check that applies passes in a health check. Here it stays drained, "
        f"whatever is fixed, for as long as these cannot be evaluated: {' '.join(UNKNOWN_TYPE)}"
    )
    assert marked(ran, "?") == [message]
    assert f"incomplete {' '.join(UNKNOWN_TYPE)}: instance type 'c6i.32xlarge' is not in the catalogue" in output_of(
        ran
    )
    helps = 'instance_type = "…" in /etc/clusterproof/slurm.toml, or [expect] in a policy (docs/policy.md)'
    assert f"what helps {helps}: {' '.join(UNKNOWN_TYPE)}\n" in output_of(ran)


@needs_nodes
def test_a_kernel_log_whose_beginning_is_lost_stands_in_the_way_until_a_script_has_run() -> None:
    with node(BY_NAME["a kernel log that has lost its beginning"].put(healthy_p5()), DRAIN) as running:
        before = run_script(running)
        running.run([str(SCRIPTS / "clusterproof-health-check")], timeout=TIMEOUT_S)
        after = run_script(running)
    assert "what helps asking again after the first run of a script: " in output_of(before)
    assert marked(after, "?") == []


@needs_nodes
def test_what_a_policy_takes_out_no_longer_stands_in_the_way() -> None:
    image = with_file(healthy_cpu(), "/etc/clusterproof/policy.toml", DISABLED)
    with node(image, f'{DRAIN}policy = "/etc/clusterproof/policy.toml"\n') as running:
        ran = run_script(running)
    assert marked(ran, "?") == []
    assert "a drained node is resumed once all that is evaluated here passes" in output_of(ran)


@needs_nodes
def test_a_driver_that_hangs_is_reported_and_hangs_nothing() -> None:
    with node(with_stuck_nvml(healthy_p5(), gpu=5), DRAIN) as running:
        ran = run_script(running)
    assert "node.evidence_complete" in output_of(ran)
    assert ran.returncode in (1, 10)


@needs_nodes
@pytest.mark.parametrize("word", ["--check-instalation", "-x"])
def test_an_option_that_means_nothing_checks_nothing(word: str) -> None:
    with node(with_file(healthy_p5(), BUDGET, ABSENT), DRAIN) as running:
        ran = run_script(running, "gpu001", "prolog", word)
        assert not (running.root / STATE).exists()
    assert ran.returncode == 4
    assert f"{word} means nothing; expected --check-installation, or nothing as Slurm calls it" in ran.stderr.decode()


@needs_nodes
@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_says_what_the_script_is_for_and_checks_nothing(word: str) -> None:
    with node(with_file(healthy_p5(), BUDGET, ABSENT), DRAIN) as running:
        ran = run_script(running, "gpu001", "prolog", word)
        assert not (running.root / STATE).exists()
    assert (ran.returncode, b"With --check-installation it says" in ran.stdout) == (0, True)


@needs_nodes
def test_without_a_python_it_says_where_one_was_looked_for() -> None:
    with node(healthy_p5(), DRAIN, python="/nowhere") as running:
        ran = run_script(running)
    assert ran.returncode == 1
    assert f"no Python in {SCRIPTS} nor at /opt/clusterproof/bin/python; expected one" in ran.stderr.decode()


@needs_nodes
def test_where_clusterproof_itself_is_broken_it_says_so_without_a_traceback() -> None:
    text = (SCRIPTS / "clusterproof-prolog").read_text()
    image = with_file(healthy_p5(), "/srv/bin/clusterproof-prolog", File(text, 0o755))
    image = with_file(image, "/srv/bin/python", File("#!/bin/sh\necho Traceback >&2\nexit 1\n", 0o755))
    with node(image, DRAIN, python="/nowhere") as running:
        ran = running.run(["/srv/bin/clusterproof-prolog", "--check-installation"], timeout=TIMEOUT_S)
    assert (ran.returncode, ran.stderr.decode()) == (
        1,
        "/srv/bin/python cannot import clusterproof; install it there again (install.md)\n",
    )


@needs_nodes
def test_a_script_uses_the_python_beside_it_from_wherever_it_is_called() -> None:
    text = (SCRIPTS / "clusterproof-prolog").read_text()
    image = with_file(healthy_p5(), "/srv/bin/clusterproof-prolog", File(text, 0o755))
    image = with_file(image, "/srv/bin/python", File(f'#!/bin/sh\nexec {sys.executable} "$@"\n', 0o755))
    with node(image, 'mode = "off"\n', python="/nowhere") as running:
        command = ["/bin/sh", "-c", "cd /srv; bin/clusterproof-prolog --check-installation"]
        assert "mode off: the scripts do nothing" in output_of(running.run(command, timeout=TIMEOUT_S))


@needs_nodes
def test_a_health_check_says_once_that_it_will_resume_nothing_here() -> None:
    says = "a node that is drained stays so, until an administrator resumes it: "
    outputs: list[str] = []
    with node(healthy_cpu(), DRAIN) as running:
        while len(outputs) < 4:
            ran = running.run([str(SCRIPTS / "clusterproof-health-check")], timeout=TIMEOUT_S)
            outputs += [output for output in [ran.stderr.decode()] if " checks in " in output]
    assert [says in output for output in outputs] == [False, True, False, False]
    assert f"{says}{', '.join(UNKNOWN_TYPE)} could not be evaluated, twice" in outputs[1]


@needs_nodes
@pytest.mark.parametrize(
    ("image", "health_checks", "says"),
    [
        (healthy_p5(), 0, "only an administrator will resume it: no health check has run here in drain mode"),
        (healthy_p5(), 1, ""),
        (healthy_cpu(), 2, f"only an administrator will resume it: the health checks cannot evaluate {NOT_EVALUATED}"),
    ],
    ids=["no health check", "a health check", "health checks that cannot evaluate all"],
)
def test_a_prolog_that_drains_says_who_will_resume_the_node(image: NodeImage, health_checks: int, says: str) -> None:
    with node(image, DRAIN) as running:
        for _ in range(health_checks):
            running.run([str(SCRIPTS / "clusterproof-health-check")], timeout=TIMEOUT_S)
        with (running.root / "dev/kmsg").open("a") as log:
            log.write("0,9000,90000000000,-;NMI watchdog: Watchdog detected hard LOCKUP on cpu 3\n")
        output = eventually(lambda: output if "drains: " in (output := prolog(running)) else "", TIMEOUT_S)
    assert ("only an administrator" in output) == bool(says)
    assert says in output


def prolog(running: Node) -> str:
    """A prolog's output; on a busy machine it may not reach a verdict."""
    ran = running.run([str(SCRIPTS / "clusterproof-prolog")], env={"SLURM_JOB_ID": "42"}, timeout=TIMEOUT_S)
    return ran.stderr.decode()


# Findings


@pytest.mark.parametrize(
    ("found", "numbers"),
    [
        ((fine("a"), fine("b")), (0, 0)),
        ((to_fix("a"), fine("b"), to_fix("c")), (2, 0)),
        ((unknown("a"), to_fix("b")), (1, 1)),
    ],
)
def test_lines_are_counted_by_their_mark(found: tuple[InstallationLine, ...], numbers: tuple[int, int]) -> None:
    sections = [Section("one", found[:1]), Section("two", found[1:])]
    assert (count(sections, LineStatus.MEND), count(sections, LineStatus.OPEN)) == numbers


def test_findings_of_one_check_are_told_apart() -> None:
    seen = "/: 2 GB free; expected 10 GB\nall that was logged of this boot; expected less"
    rehearsal = Rehearsal("prolog", 5.0, 1.0, (Evaluated("host.kernel", "concern", seen, ""),))
    [line] = findings((rehearsal,), "concern", Settings())
    assert "expected 10 GB; all that was logged of this boot" in line.text


def test_what_a_node_reports_cannot_write_on_the_terminal() -> None:
    assert "\x1b" not in rendered([Section("checks", (fine("a\x1b[31mb\nc", "label"),))])
