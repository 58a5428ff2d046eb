"""Results on a node that was not reached: who is at fault, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest

from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.catalog.node import unreached_rows
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence, Unreached
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks, node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.reports.findings import findings, missing_evidence
from clusterproof.reports.formats.html import document
from clusterproof.reports.formats.junit import suites
from clusterproof.reports.formats.markdown import markdown
from clusterproof.reports.formats.text import text
from clusterproof.reports.run import Run
from clusterproof.reports.summary import summary
from tests.reports.page import Page
from tests.reports.reported import run_of

OF_THE_CALLER = (
    Unreached.AUTH,
    Unreached.HOST_KEY,
    Unreached.NAME,
    Unreached.NO_CONTAINER,
    Unreached.THROTTLED,
    Unreached.UNRECORDED,
)
OF_SLURM = (Unreached.BUSY, Unreached.DRAINED)
OF_KUBERNETES = (Unreached.API, Unreached.NO_IMAGE, Unreached.REMOVED)


def reaching(why: Unreached, target: Target | None = None) -> Result:
    target = target or Target("gpu001")
    return evaluate(all_checks()["node.reachable"], Node(target, NodeEvidence(target.name, unreached=why, detail="so")))


def test_every_reason_has_a_remedy() -> None:
    assert set(unreached_rows()) == {why.value for why in Unreached}


@pytest.mark.parametrize("why", Unreached)
def test_only_what_is_the_nodes_own_speaks_against_it(why: Unreached) -> None:
    expected = Verdict.INCOMPLETE if why in (*OF_THE_CALLER, *OF_SLURM, *OF_KUBERNETES) else Verdict.FAIL
    assert reaching(why).verdict is expected


@pytest.mark.parametrize("why", Unreached)
def test_the_remedy_is_that_of_the_reason_and_names_the_node(why: Unreached) -> None:
    remedy = reaching(why).remedy
    assert remedy == unreached_rows()[why.value].remedy.replace("NODE", "gpu001")
    assert "NODE" not in remedy


@pytest.mark.parametrize("why", [*OF_THE_CALLER, *OF_KUBERNETES])
def test_for_a_fault_of_the_callers_nobody_is_told_to_replace_or_reboot(why: Unreached) -> None:
    assert not {"replace", "reboot"} & set(reaching(why).remedy.lower().replace(",", "").split())


@pytest.mark.parametrize(
    ("target", "why", "command"),
    [
        (Target("gpu001"), Unreached.REFUSED, "ssh gpu001 true"),
        (Target("gpu001", "10.0.0.7", "ubuntu", 2222), Unreached.AUTH, "ssh -p 2222 ubuntu@10.0.0.7 true"),
        (Target("gpu001", "a;b"), Unreached.REFUSED, "ssh 'a;b' true"),
        (Target("gpu001"), Unreached.NO_CONTAINER, "COMMAND python3 -V"),
        (Target("gpu001"), Unreached.DRAINED, "scontrol show node gpu001"),
        (Target("gpu001"), Unreached.NOT_READY, "kubectl describe node gpu001"),
        (
            Target("gpu001", "i-0123456789abcdef0"),
            Unreached.NOT_CONNECTED,
            "aws ssm start-session --target i-0123456789abcdef0",
        ),
    ],
)
def test_the_command_goes_the_way_that_the_suite_went(target: Target, why: Unreached, command: str) -> None:
    assert reaching(why, target).evidence == command


@pytest.mark.parametrize(
    ("target", "settings", "command"),
    [
        (
            Target("n2", "127.0.0.1", port=9),
            {"user": "ubuntu", "config": "ssh_config"},
            "-F ssh_config -p 9 ubuntu@127.0.0.1",
        ),
        (Target("n2", user="root"), {"user": "ubuntu", "port": "2222"}, "-p 2222 root@n2"),
        (
            Target("n2"),
            {"identity_file": "a key", "known_hosts": "hosts", "accept_new_host_keys": "yes"},
            "-i 'a key' -o UserKnownHostsFile=hosts n2",
        ),
    ],
)
def test_the_command_has_the_settings_of_the_inventory(target: Target, settings: dict[str, str], command: str) -> None:
    evidence = {target.name: NodeEvidence(target.name, unreached=Unreached.REFUSED)}
    node = nodes(Cluster("lab", "ssh", (target,), settings), evidence)[target.name]
    assert evaluate(all_checks()["node.reachable"], node).evidence == f"ssh {command} true"


def test_a_container_that_srun_begins_is_seen_by_srun() -> None:
    evidence = {"n1": NodeEvidence("n1", unreached=Unreached.NO_CONTAINER)}
    settings = {"srun_options": "--gres=gpu:8 --container-image=x"}
    node = nodes(Cluster("lab", "srun", (Target("n1"),), settings), evidence)["n1"]
    expected = "srun -w n1 --gres=gpu:8 --container-image=x python3 -V"
    assert evaluate(all_checks()["node.reachable"], node).evidence == expected


@pytest.mark.parametrize(
    ("settings", "command"),
    [({"recording": "a b"}, "ls -lR 'a b'"), ({"capture": "cap"}, "ls -lR cap"), ({}, "ls -lR DIR")],
)
def test_a_node_that_a_recording_lacks_is_shown_by_its_folder(settings: dict[str, str], command: str) -> None:
    evidence = {"n2": NodeEvidence("n2", unreached=Unreached.UNRECORDED)}
    node = nodes(Cluster("lab", "replay", (Target("n2"),), settings), evidence)["n2"]
    assert evaluate(all_checks()["node.reachable"], node).evidence == command


def everywhere(why: Unreached, count: int = 4) -> list[Result]:
    return [reaching(why, Target(f"gpu{number:03d}")) for number in range(count)]


def test_where_all_nodes_refuse_alike_one_line_points_at_the_callers_side() -> None:
    [finding] = findings(everywhere(Unreached.REFUSED), Verdict.FAIL, PACKAGED)
    assert finding.suspicion == "all 4 nodes alike: look first at where you ask from: its key, user, network"
    [gap] = missing_evidence(everywhere(Unreached.AUTH))
    assert gap.suspicion == finding.suspicion
    screen = "\n".join(line.text for line in summary(everywhere(Unreached.AUTH), PACKAGED, 200))
    assert screen.startswith("CANNOT REACH  gpu[000-003] (auth)\nFIT           0 of 4 nodes\n")
    assert "do:     Give a user and a key that gpu000 lets in" in screen
    assert "eplace" not in screen


@pytest.mark.parametrize("why", [Unreached.UNRECORDED, Unreached.NO_PYTHON, Unreached.DOWN])
def test_what_all_nodes_or_their_recording_lack_is_not_looked_for_at_the_callers_side(why: Unreached) -> None:
    assert not any(finding.suspicion for finding in findings(everywhere(why), Verdict.FAIL, PACKAGED))
    assert not any(gap.suspicion for gap in missing_evidence(everywhere(why)))


@pytest.mark.parametrize("form", [document, markdown, text], ids=lambda form: form.__name__)
def test_each_form_says_what_to_do_where_nobody_lets_in(form: Callable[[Run], str]) -> None:
    page = form(run_of(everywhere(Unreached.AUTH)))
    lines = " ".join(Page(page).text.split() if form is document else page.split())
    assert "all 4 nodes alike: look first at where you ask from: its key, user, network" in lines
    assert "Give a user and a key that gpu000 lets in" in lines
    assert "nothing is worth a look" not in lines


def every_verdict(why: Unreached) -> list[Result]:
    """The results of all checks on a node that was not reached."""
    node = Node(Target("gpu001"), NodeEvidence("gpu001", unreached=why, detail="so"))
    return [evaluate(check, node) for check in node_checks().values()]


@pytest.mark.long
@pytest.mark.parametrize(("why", "tag"), [(Unreached.REFUSED, "failure"), (Unreached.AUTH, "error")])
def test_all_checks_of_such_a_node_make_one_wrong_case_in_junit(why: Unreached, tag: str) -> None:
    cases = ET.fromstring(suites(run_of(every_verdict(why)))).iter("testcase")
    tags = {str(case.get("name")): case[0].tag for case in cases}
    assert {name: value for name, value in tags.items() if value != "skipped"} == {"node.reachable": tag}


@pytest.mark.parametrize("why", [Unreached.REFUSED, Unreached.AUTH])
def test_all_checks_of_such_a_node_show_only_the_remedy_for_reaching_it(why: Unreached) -> None:
    results = every_verdict(why)
    shown = [line.text for line in summary(results, PACKAGED, 10_000) if line.text.strip().startswith("do:")]
    assert shown == [
        f"            do:     {next(result.remedy for result in results if result.check == 'node.reachable')}"
    ]


def test_where_one_of_many_is_not_reached_nothing_is_said_of_the_others() -> None:
    results = [*everywhere(Unreached.REFUSED, 1), Result("node.reachable", "gpu009", Verdict.PASS, subsystem="node")]
    [finding] = findings(results, Verdict.FAIL, PACKAGED)
    assert finding.suspicion == ""
