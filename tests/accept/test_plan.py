"""The plan: its defaults, and one clear line for each mistake."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.accept import command
from clusterproof.plugins.accept.command import accept
from clusterproof.plugins.accept.plan import kind_of, plan_of
from clusterproof.plugins.core.cluster import Cluster, InventoryError, Target
from clusterproof.plugins.inventory import resolve
from tests.accept.simulated import cluster_of, plan

MISTAKES = (
    ("stages = [\n", "plan.toml is not TOML"),
    ("hours = 3\n", "'hours' is not a known key; expected bought, errors, limits"),
    ('stages = ["inventory", ["speed"]]\n', "there is no stage ['speed']"),
    ('stages = ["inventory", "sped"]\n', "there is no stage 'sped' (did you mean speed?)"),
    ('stages = ["speed"]\n', "stages begin with 'speed'; expected inventory"),
    ('stages = ["inventory", "inventory"]\n', "each once"),
    ("[errors]\nslower = 5\n", "slower is 5; expected a number above 0 and below 1"),
    ("[errors]\nshows_in = true\n", "shows_in is True; expected a number above 0.01 and below 1"),
    ("[errors]\nshows_in = 1e-300\n", "shows_in is 1e-300; expected a number above 0.01 and below 1"),
    ("[errors]\nbad_accepted = 2e-9\n", "bad_accepted and shows_in ask for 13 runs of each node; expected at most 12"),
    ("[limits]\nnodes_at_once = 0\n", "nodes_at_once is 0; expected 1 to 100000"),
    (
        'stages = ["inventory", "exact", "pairs"]\n[limits]\nnodes_at_once = 1\n',
        "nodes_at_once is 1, and pairs load two nodes at once or more; expected 2 or more, or stages without these",
    ),
    ("[limits]\nhours = inf\n", "hours is inf; expected a number above 0 and below 1440"),
    ("[floors]\ngemm = 600\n", "'gemm' is not a known key"),
    (
        'stages = ["inventory"]\n[floors]\ngpu_gemm = 600\n',
        "plan.toml [floors]: gpu_gemm is measured by the stage speed; expected it among the stages, or no floors",
    ),
    (
        "[floors]\nfs_bandwidth = 2\n",
        "plan.toml [floors]: fs_bandwidth is measured where [options] name a folder; expected fs-bandwidth among them",
    ),
    ('[floors]\nfs_bandwidth = 2\n[options]\nfs-bandwidth = ""\n', "expected fs-bandwidth among them"),
    ("[bought]\nexpect = { gpu = 8 }\n", "'gpu' is not a known resource (did you mean gpus?)"),
    ('[options]\nrecord = "x"\n', "'record': accept sets that itself"),
    ('[options]\nin-container = "x"\n', "'in-container': accept sets that itself, or does without"),
    ('[options]\nfs-bandwith = "x"\n', "'fs-bandwith': no option is called so (did you mean fs-bandwidth?)"),
    ('[options]\nsudo = "yes"\n', "sudo is 'yes'; expected true or false"),
    ("[options]\ndcgm-level = 5\n", "dcgm-level is 5; expected one of 1, 2, 3, 4"),
    ("[options]\ndcgm-level = 2.0\n", "dcgm-level is 2.0; expected one of 1, 2, 3, 4"),
    ('[options]\nexact-s = "long"\n', "exact-s is 'long'; expected a number"),
    ("[options]\nexact-s = -5\n", "plan.toml [options]: exact-s is -5; expected 1 to 86400"),
    ("[options]\nexact-s = nan\n", "exact-s is nan; expected a finite number"),
    ('[options]\npair-timeout = "inf"\n', "pair-timeout is 'inf'; expected a finite number"),
    ("[options]\npair-timeout = 0.5\n", "pair-timeout is 0.5; expected at least 1"),
    (f"[options]\nexact-s = 1{'0' * 400}\n", "expected a finite number"),
    ("[options]\nfanout = 1.5\n", "fanout is 1.5; expected a whole number"),
    ("[options]\nprobe-timeout = 1e6\n", "probe-timeout is 1e+06; expected at most 86400 s, a day"),
    ('[options]\nload-timeout = "soon"\n', "load-timeout has 'soon'; expected S or NAME=S"),
    (
        '[options]\ndcgm-parameters = "garbage"\n',
        "plan.toml [options]: dcgm-parameters has 'garbage'; expected TEST.NAME=",
    ),
    (
        "[options]\nstress-s = 3600\nload-timeout = 600\n",
        "stress-s asks for 3600 s, and stress_ng is killed after 600; expected --load-timeout stress_ng=3630 or more",
    ),
    (
        '[options]\npolicy = "/nowhere.toml"\n',
        "plan.toml [options]: '/nowhere.toml': No such file or directory; expected a policy",
    ),
    ('[options]\nmeter-size = "much"\n', "meter-size is 'much'; expected bytes, or a number with K, M or G"),
    ('[options]\npolicy = ""\n', "policy is empty; expected FILE"),
    ('[options]\npairs-budget = "an hour"\n', "pairs-budget is 'an hour'; expected a time as 90s, 20m or 2h"),
    ("[options]\nfs-size = [1]\n", "fs-size is [1]; expected text or a number"),
)


@pytest.mark.parametrize(("text", "words"), MISTAKES)
def test_a_mistake_is_one_line(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InventoryError) as refused:
        plan(tmp_path, text)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("baseline", "", "its JSON cannot be read"),
        ("policy", "", "is empty; expected a policy (docs/policy.md)"),
        ("policy", "thresholds = 3\n", "own [thresholds] is a whole number; expected a table"),
    ],
)
def test_what_no_run_could_read_is_refused_with_the_plan(
    option: str, content: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "own"
    file.write_text(content)
    with pytest.raises(InventoryError, match=re.escape(message)):
        plan(tmp_path, f'[options]\n{option} = "{file}"\n')


def test_without_a_plan_the_default_of_the_type_holds() -> None:
    of_gpus = plan_of(None, cluster_of())
    assert [stage.name for stage in of_gpus.stages] == [
        "inventory",
        "exact",
        "speed",
        "pairs",
        "groups",
        "collectives",
        "whole",
    ]
    of_pods = plan_of(None, replace(cluster_of(), connection="kubernetes"))
    assert [stage.name for stage in of_pods.stages] == ["inventory", "exact", "speed", "pairs", "groups", "whole"]
    assert (of_gpus.errors.least_runs, of_gpus.nodes_at_once, of_gpus.at_once(8)) == (3, 0, 8)


def test_what_was_bought_is_expected_of_each_node(tmp_path: Path) -> None:
    made = plan(
        tmp_path, "[bought]\nnodes = 8\nexpect = { gpus = 8, efa = 32 }\n[options]\nsudo = true\nfs-size = 64\n"
    )
    assert (made.expectations, made.options) == (("--expect=gpus=8,efa=32",), ("--sudo", "--fs-size=64"))


def test_a_dry_run_says_order_hours_and_what_is_proven(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text('stages = ["inventory", "speed"]\n[limits]\nnodes_at_once = 4\n')
    status, text = accept(["ssh:n[1-8]", "--plan", str(file), "--dry-run"])
    assert status == 0
    assert text.splitlines()[0] == "8 nodes of n[1-8]; 4 under load at once; at most 24 h"
    assert "2. Every node alone: bandwidth, clocks under load, storage: 3 times each, what is open again" in text
    assert "about 38 min if nothing has to be repeated" in text


def test_a_dry_run_says_each_declared_share_in_full(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text("[errors]\nslower = 0.025\nshows_in = 0.875\ngood_rejected = 0.00002\nbad_accepted = 0.01\n")
    text = accept(["ssh:n[1-8]", "--plan", str(file), "--dry-run"])[1]
    assert "declared: at most 0.002% of good nodes rejected, 1% of bad ones accepted; bad is 2.5% slower, in" in text
    assert "in at least 87.5% of runs" in text


def test_a_dry_run_says_with_which_options_each_run_is_made(tmp_path: Path) -> None:
    """A plan of another may name programs of nodes and where results are sent: whoever uses it sees that before."""
    file = tmp_path / "plan.toml"
    file.write_text('[options]\nsrun-options = "--task-prolog=/home/u/x"\nnotify = "json://example.com/\\u001b[2J"\n')
    text = accept(["ssh:n[1-8]", "--plan", str(file), "--dry-run"])[1]
    line = "each run with --srun-options=--task-prolog=/home/u/x '--notify=json://example.com/\\x1b[2J'"
    assert line in text.splitlines()


def test_a_dry_run_counts_no_stage_that_is_not_run_and_says_what_cannot_be_kept(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text('stages = ["inventory", "pairs", "groups"]\n[bought]\nnodes = 9\n[limits]\nhours = 0.2\n')
    text = accept(["ssh:n[1-8]", "--plan", str(file), "--dry-run"])[1]
    assert "the plan says that 9 nodes were bought, so this cluster cannot be accepted" in text
    assert "3. Groups: all pairs within each place: not here" in text
    assert text.splitlines()[-1] == (
        "about 22 min if nothing has to be repeated, which is more than the 0.2 h of the plan"
    )


@pytest.mark.parametrize(
    ("option", "minutes"),
    [
        ("", (2, 8, 6, 20)),
        ("exact-s = 3600", (2, 67, 6, 20)),
        ("exact-s = 10", (2, 8, 6, 20)),
        ("dcgm-level = 4", (2, 143, 6, 20)),
        ('pairs-budget = "2h"', (2, 8, 6, 120)),
    ],
)
def test_what_options_ask_for_counts_for_the_time_that_is_allowed(
    option: str, minutes: tuple[int, ...], tmp_path: Path
) -> None:
    made = plan(tmp_path, f'stages = ["inventory", "exact", "speed", "pairs"]\n[options]\n{option}\n')
    assert tuple(made.minutes(stage) for stage in made.stages) == minutes


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("demo",), "'demo' is a recording or capture; expected nodes that can be measured now"),
        (("ssh:n[1-8]", "--again", "n9"), "--again names 'n9', which is not a node"),
        (("ssh:n[1-8]", "--plan", "/nowhere/plan.toml"), "No such file or directory; expected a plan"),
    ],
)
def test_what_cannot_be_accepted_is_refused_in_one_line(words: tuple[str, ...], message: str) -> None:
    status, text = accept(words)
    assert (status, text.count("\n")) == (4, 1)
    assert message in text


def test_options_of_a_plan_that_say_where_the_nodes_are_hold_for_the_cluster_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []

    def resolved(text: str, options: dict[str, str]) -> Cluster:
        seen.append(options)
        return resolve(text)

    monkeypatch.setattr(command, "resolve", resolved)
    plan = tmp_path / "plan.toml"
    plan.write_text('[options]\nregion = "eu-west-1"\ninclude-drained = true\nsudo = true\n')
    assert command.accept(["ssh:n[1-2]", "--plan", str(plan), "--dry-run"])[0] == 0
    assert seen == [{"region": "eu-west-1", "include_drained": "yes"}]


@pytest.mark.parametrize(
    ("instance_type", "kind"),
    [
        ("ml.p5.48xlarge", "gpu"),
        ("trn2.48xlarge", "neuron"),
        ("ml.trn1.32xlarge", "neuron"),
        ("inf2.48xlarge", "neuron"),
        ("ml.c5n.18xlarge", "cpu"),
    ],
)
def test_a_type_by_its_name_of_sagemaker_is_of_the_same_hardware(instance_type: str, kind: str) -> None:
    assert kind_of(Cluster("c", "ssh", (Target("n1", instance_type=instance_type),))) == kind
