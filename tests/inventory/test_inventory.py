"""`--cluster X`: valid forms of X, and the errors for others."""

from __future__ import annotations

import re
import socket
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.accept import command as accept
from clusterproof.plugins.accept import return_to_service
from clusterproof.plugins.aws import AwsError
from clusterproof.plugins.command_line.overview import short_help
from clusterproof.plugins.core.cluster import Cluster, InventoryError, Target
from clusterproof.plugins.core.kinds import FILE, HYPERPOD, KINDS, Kind
from clusterproof.plugins.inventory import hyperpod, narrow, resolve, settings_in, with_expectations
from clusterproof.plugins.options.table import GROUPS
from tests.inventory.refused import refusal, written

# Kinds


def test_local_is_this_machine_by_its_own_name() -> None:
    assert resolve("local") == Cluster("local", "local", (Target(socket.gethostname()),), is_part=True)


def test_the_demo_is_a_recording_that_comes_with_the_package() -> None:
    demo = resolve("demo")
    assert demo.connection == "replay"
    assert {f"{target.name}.json" for target in demo.targets} == {
        path.name for path in Path(demo.settings["recording"], "nodes").iterdir()
    }


@pytest.mark.parametrize(
    ("text", "name", "targets"),
    [
        ("ssh:gpu1", "gpu1", (Target("gpu1"),)),
        ("ssh:gpu[001-002]", "gpu[001-002]", (Target("gpu001"), Target("gpu002"))),
        ("ssh:root@gpu1:2222", "gpu1", (Target("gpu1", user="root", port=2222),)),
        ("ssh:a.b-c+d@10.0.0.1", "10.0.0.1", (Target("10.0.0.1", user="a.b-c+d"),)),
        ("ssh:me@realm@gpu1", "gpu1", (Target("gpu1", user="me@realm"),)),
        ("ssh:b,a,b", "a,b", (Target("a"), Target("b"))),
    ],
)
def test_ssh_names_nodes_a_user_and_a_port(text: str, name: str, targets: tuple[Target, ...]) -> None:
    assert resolve(text) == Cluster(name, "ssh", targets)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is empty; expected local, demo, replay:DIR, capture:PATH, ssh:[user@]NODESET[:port], "),
        ("", "a HyperPod cluster's NAME or ARN, or FILE.toml"),
        ("  ", "is empty"),
        ("lokal", "did you mean local?"),
        ("LOCAL", "did you mean local?"),
        ("demo:", "did you mean demo?"),
        ("shh:gpu1", "did you mean ssh:?"),
        ("ssh", "did you mean ssh:?"),
        ("reply:/x", "did you mean replay:?"),
        ("gpu[001-004]", "did you mean ssh:gpu[001-004]?"),
        ("@gpu", "is of no known kind; expected local, demo"),
        ("/", "is a folder (did you mean replay:/, or capture:/?)"),
        ("x!y", "is of no known kind; expected"),
        ("a\nb", "is of no known kind; expected"),
        ("\0", "is of no known kind; expected"),
        ("x" * 5000, "is of no known kind; expected"),
        ("ssh:", "an empty nodeset"),
        ("ssh:gpu[1", "a bracket without its partner"),
        ("ssh:gpu[1-99999999]", "at most 100,000"),
        ("ssh:@gpu1", "'' is not a user name"),
        ("ssh:a b@gpu1", "'a b' is not a user name"),
        ("ssh:-oX@gpu1", "'-oX' is not a user name"),
        ("ssh:$(id)@gpu1", "'$(id)' is not a user name"),
        ("ssh:gpu1:", "'' is not a port"),
        ("ssh:gpu1:ssh", "'ssh' is not a port"),
        ("ssh:gpu1:0", "'0' is not a port"),
        ("ssh:gpu1:65536", "'65536' is not a port"),
        ("replay:", "names no folder"),
        ("replay:/nowhere", "No such file or directory; expected a folder that --record wrote"),
        ("replay:/\0", "null"),
        ("capture:", "names no folder"),
        ("capture:/nowhere", "no such file or folder; expected a folder of files"),
        ("capture:/\0", "no such file or folder"),
        ("capture:~nosuchuser/x", "no such file or folder"),
        ("/nowhere.toml", "No such file or directory; expected an inventory"),
    ],
)
def test_what_names_no_cluster_is_one_line_with_the_nearest_that_does(text: str, message: str) -> None:
    assert message in refusal(text)


@given(st.text(max_size=30), st.sampled_from(["", "ssh:", "replay:", "capture:/nowhere/", "demo"]))
def test_any_text_names_a_cluster_or_is_refused_in_one_line(text: str, prefix: str) -> None:
    line = "one line"
    try:
        assert resolve(prefix + text).targets
    except InventoryError as refused:
        line = str(refused)
    assert len(line.splitlines()) == 1


def test_options_of_the_command_line_outrank_an_inventorys_settings(tmp_path: Path) -> None:
    path = written(tmp_path, '[ssh]\nuser = "ubuntu"\nport = 22\n[[group]]\nnodes = "a"\n')
    assert resolve(path, {"user": "root"}).settings == {"user": "root", "port": "22"}


@pytest.mark.parametrize(
    ("is_there", "ends"),
    [
        (True, "; for a host say ssh:d; for the folder here say replay:d or capture:d"),
        (False, "; for a host say ssh:d"),
    ],
)
def test_a_folder_that_is_called_like_a_hyperpod_cluster_is_said_to_be_one(
    is_there: bool, ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise AwsError("no AWS region")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hyperpod, "Account", refused)
    if is_there:
        Path("d").mkdir()
    with pytest.raises(InventoryError) as wrong:
        resolve("d")
    assert str(wrong.value) == f"--cluster 'd' is taken for a HyperPod cluster: no AWS region{ends}"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--region", "--region has no value; expected one argument"),
        ("--include-drained=yes", "--include-drained has a value; expected it alone"),
    ],
)
def test_an_option_of_a_plan_that_is_given_wrongly_is_named(word: str, message: str) -> None:
    with pytest.raises(InventoryError) as wrong:
        settings_in([word])
    assert str(wrong.value) == message


@pytest.mark.parametrize("parser", [accept.parser, return_to_service.parser], ids=["accept", "return"])
def test_what_measures_nodes_offers_no_recording_and_no_capture(parser: Callable[[], ArgumentParser]) -> None:
    shown = " ".join(parser().format_help().split())
    assert not [form for form in ("demo", "replay:DIR", "capture:PATH") if form in shown]
    assert "X the nodes: local, ssh:[user@]NODESET[:port], slurm:" in shown


@pytest.mark.parametrize("kind", [*KINDS, HYPERPOD, FILE], ids=lambda kind: kind.form)
def test_every_kind_has_its_form_its_help_and_its_resolver(kind: Kind) -> None:
    assert kind.form.startswith(kind.word)
    assert kind.help
    assert callable(resolve_name(f"clusterproof.plugins.{kind.resolver}"))


# Narrowing and expectations

CLUSTER = resolve("ssh:gpu[1-4],login1")


@pytest.mark.parametrize(
    ("nodes", "exclude", "left"),
    [
        ("", "", ["gpu1", "gpu2", "gpu3", "gpu4", "login1"]),
        ("gpu[2-3]", "", ["gpu2", "gpu3"]),
        ("", "login1,gpu4", ["gpu1", "gpu2", "gpu3"]),
        ("gpu[1-3]", "gpu2", ["gpu1", "gpu3"]),
        ("gpu1", "gpu2", ["gpu1"]),
    ],
)
def test_a_cluster_is_narrowed_to_some_nodes(nodes: str, exclude: str, left: list[str]) -> None:
    narrowed = narrow(CLUSTER, nodes, exclude)
    assert [target.name for target in narrowed.targets] == left
    assert narrowed.is_part is (len(left) < len(CLUSTER.targets))


def test_a_node_is_known_by_its_whole_name_which_may_be_no_nodeset() -> None:
    first, second, third = (Target(name) for name in ("GPU worker (1)", "GPU worker (2)", "GPU, spare"))
    of_ec2 = Cluster("asg", "ssm", (first, second, third))
    assert narrow(of_ec2, nodes="GPU worker (2)").targets == (second,)
    assert narrow(of_ec2, exclude="GPU, spare").targets == (first, second)
    assert narrow(of_ec2, exclude="GPU worker (1),GPU worker (2)").targets == (third,)
    with pytest.raises(InventoryError, match=_literal("--nodes: 'GPU worker' has ' ' in it")):
        narrow(of_ec2, nodes="GPU worker")


@pytest.mark.parametrize(
    ("nodes", "exclude", "message"),
    [
        ("gpu[4-6]", "", "--nodes: gpu[5-6] is not in gpu[1-4],login1"),
        ("", "logn1", "--exclude: logn1 is not in gpu[1-4],login1 (did you mean login1?)"),
        ("gpu[1", "", "--nodes: 'gpu[1' has a bracket"),
        ("gpu1", "gpu1", "no node of gpu[1-4],login1 is left by --nodes"),
        ("", "gpu[1-4],login1", "no node of gpu[1-4],login1 is left by --nodes"),
    ],
)
def test_a_narrowing_that_cannot_be_meant_is_refused(nodes: str, exclude: str, message: str) -> None:
    with pytest.raises(InventoryError, match=f"^{_literal(message)}"):
        narrow(CLUSTER, nodes, exclude)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ((Target("gpu1", "10.0.0.1"), Target("gpu1", "10.0.0.2")), "mine has the node 'gpu1' twice; expected it once"),
        ((Target("gpu1"), Target("", "10.0.0.2")), "mine has a node without a name; expected one for each"),
        ((), "mine has no node; expected at least one"),
    ],
)
def test_nodes_that_cannot_be_told_apart_in_another_authors_inventory_are_refused(
    targets: tuple[Target, ...], message: str
) -> None:
    with pytest.raises(InventoryError, match=f"^{message}$"):
        narrow(Cluster("mine", "ssh", targets))


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ({"gpu": 8}, "mine gpu1 [expect]: 'gpu' is not a known resource (did you mean gpus?)"),
        ({"gpus": -1}, "mine gpu1 [expect]: gpus is -1; expected 0 to 100000"),
    ],
)
def test_what_another_authors_inventory_cannot_expect_is_refused(expect: Mapping[str, int], message: str) -> None:
    with pytest.raises(InventoryError, match=f"^{_literal(message)}"):
        narrow(Cluster("mine", "ssh", (Target("gpu1", expect=expect),)))


def _literal(text: str) -> str:
    return "".join(f"[{c}]" if c in "()?" else "\\" + c if c in "[]." else c for c in text)


def test_expectations_of_the_command_line_outrank_the_inventorys() -> None:
    inventory = Cluster("c", "ssh", (Target("a", instance_type="p5", expect={"gpus": 8, "efa": 32}), Target("b")))
    cluster = with_expectations(inventory, "p4d.24xlarge", "efa=4,nvlinks=12")
    assert [(target.instance_type, target.expect) for target in cluster.targets] == [
        ("p4d.24xlarge", {"gpus": 8, "efa": 4, "nvlinks": 12}),
        ("p4d.24xlarge", {"efa": 4, "nvlinks": 12}),
    ]
    assert with_expectations(inventory) == inventory


def test_the_help_of_what_outranks_the_inventory_says_so() -> None:
    words = {option.flag: option.words for group in GROUPS.values() for option in group}
    assert all("outranks" in words[flag] for flag in ("--instance-type", "--expect"))
    assert re.search("--expect .* outranks", short_help())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu=8", "'gpu' is not a known resource (did you mean gpus?)"),
        ("gpus", "'gpus' is not NAME=NUMBER"),
        ("gpus=-1", "'gpus=-1' is not NAME=NUMBER"),
        ("gpus=1.5", "'gpus=1.5' is not NAME=NUMBER"),
        ("gpus=8,", "'' is not NAME=NUMBER"),
        ("gpus=8,gpus=8", "gives gpus twice"),
        ("gpus=99999999", "is not NAME=NUMBER"),
        (" ", "is not NAME=NUMBER"),
    ],
)
def test_an_expectation_that_counts_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(InventoryError) as raised:
        with_expectations(CLUSTER, expect=text)
    assert message in str(raised.value)


def test_an_expectation_of_none_is_an_expectation() -> None:
    assert with_expectations(CLUSTER, expect="gpus=0").targets[0].expect == {"gpus": 0}
