"""`clusterproof checks` and `clusterproof explain`: descriptions of checks, without a run."""

from __future__ import annotations

import pytest

from clusterproof.plugins.catalog.nvidia import VERDICTS
from clusterproof.plugins.command_line.explain import MAX_WIDTH, WHEN, checks, explain
from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.evaluation.all_checks import all_checks, example_of
from clusterproof.plugins.evaluation.rules import rules


@pytest.mark.long
@pytest.mark.parametrize("name", all_checks())
def test_every_check_is_explained_within_the_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    status, text = explain([name])
    about = all_checks()[name].route
    head, *lines = text.splitlines()
    assert status == 0
    assert head == f"{name}: {about.title}"
    labels = {line[2:18].strip() for line in lines if line.startswith("  ") and line[2] != " "}
    assert labels >= {"do", "by hand", "owner", "runs", "reads"}
    assert labels & {"fail", "concern", "incomplete", "not applicable"}
    assert max(len(line) for line in lines) <= MAX_WIDTH
    shown = " ".join(" ".join(lines).split())
    for paragraph in (about.remedy, about.meaning):
        assert " ".join(paragraph.split()) in shown


@pytest.mark.parametrize("name", all_checks())
def test_every_sentence_says_something(name: str) -> None:
    sentences = [rule.sentence for rule in rules(all_checks()[name].function)]
    assert [sentence for sentence in sentences if not sentence.strip("… ")] == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("control_plane.k8s_kubelet_policy", "  concern         … differs; expected as on most nodes of its group\n"),
        ("gpu.compute_mode", "  concern         compute mode is …; expected default\n"),
        ("network.ib_count", "  not applicable  this node's fabric is EFA\n"),
        ("gpu.no_xid", "  fail            …; expected …\n"),
    ],
)
def test_what_is_put_together_at_run_time_is_explained_as_far_as_it_is_known(name: str, message: str) -> None:
    assert message in explain([name])[1]


def test_a_command_is_not_broken_in_the_middle_of_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    query = (
        "--query-gpu=index,name,vbios_version,memory.total,enforced.power.limit,power.default_limit,clocks.max.graphics"
    )
    assert f"{query},mig.mode.current,pcie.link.gen.max,pcie.link.width.max" in explain(["gpu.gpu_uniform"])[1]


def test_a_threshold_is_explained_with_its_value_its_unit_and_its_source() -> None:
    _, text = explain(["network.memlock"])
    assert "  threshold       memlock.minimum_gib: 16 GiB (awsome-efa)\n" in text


@pytest.mark.parametrize(
    ("word", "heads"),
    [
        ("gpu.no_xid", ["gpu.no_xid"]),
        ("no_xid", ["gpu.no_xid"]),
        ("test_no_xid", ["gpu.no_xid"]),
        ("checks/gpu/test_kernel_log.py::test_no_xid", ["gpu.no_xid"]),
        ("pairwise", ["network.pairwise_busbw", "network.pairwise_correct", "network.pairwise_transport"]),
        ("checks/gpu/test_kernel_log.py::test_no_xid[gpu001-GPU 3]", ["gpu.no_xid"]),
        ("xid:79", ["Xid 79"]),
        ("XID 79", ["Xid 79"]),
        ("xid79", ["Xid 79"]),
    ],
)
def test_a_check_goes_by_its_id_its_name_and_the_beginning_of_its_name(word: str, heads: list[str]) -> None:
    status, text = explain([word])
    names = [line.partition(":")[0] for line in text.splitlines() if line and not line.startswith(" ")]
    assert status == 0
    assert sorted(name for name in names if name in heads) == heads


def test_an_xid_is_explained_with_what_to_do() -> None:
    _, text = explain(["xid:79"])
    assert text.startswith("Xid 79: GPU has fallen off the bus\n")
    assert "  verdict         fail, from the first one on" in text
    assert "  do              reboot the node; replace it if it returns\n" in text


def test_an_xid_that_nobody_knows_is_a_concern_to_look_up() -> None:
    _, text = explain(["xid:9999"])
    assert text.startswith("Xid 9999: unknown Xid\n")
    assert "look it up in NVIDIA's Xid catalogue" in text


def test_every_verdict_of_an_xid_has_words() -> None:
    assert set(WHEN) == set(VERDICTS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["explain", "gpu.no_xidd"],
            "no check is called 'gpu.no_xidd' (did you mean gpu.no_xid?); clusterproof",
        ),
        (["explain", "qqqqqqq"], "no check is called 'qqqqqqq'; clusterproof checks lists all; an Xid is xid:79"),
        (["explain", ""], "no check is called ''; clusterproof checks lists all"),
        (["explain", "test_"], "no check is called 'test_'; clusterproof checks lists all"),
        (["checks", "-m", "prolog and"], "-m 'prolog and': "),
        (["checks", "-m", "nosuch"], "no check has the marks 'nosuch'; clusterproof --markers lists them"),
        (["explian", "no_xid"], "clusterproof: no command is called 'explian' (did you mean explain?)"),
        (["chekcs"], "clusterproof: no command is called 'chekcs' (did you mean checks?)"),
        (["manifets", "--from", "local"], "clusterproof: no command is called 'manifets' (did you mean manifest?)"),
    ],
)
def test_what_nobody_knows_is_one_line_that_says_what_is_near(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 4
    out, wrong = capsys.readouterr()
    assert (out, wrong.count("\n")) == ("", 1)
    assert message in wrong


@pytest.mark.parametrize("words", [["explain"], ["checks", "--nosuch"], ["history", "--nosuch"]])
def test_a_bad_command_line_ends_with_4_as_everywhere(words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 4


def test_help_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["explain", "--help"])
    assert end.value.code == 0
    assert "xid:79" in capsys.readouterr().out


def test_checks_are_listed_by_subsystem_with_when_they_run() -> None:
    status, text = checks([])
    names = [line.split()[0] for line in text.splitlines()]
    assert status == 0
    assert sorted(names) == sorted(all_checks())
    assert [name.partition(".")[0] for name in names].index("gpu") > 0
    assert next(line for line in text.splitlines() if line.startswith("gpu.no_xid ")).endswith(
        "Xid errors (preflight, prolog, epilog)"
    )


def test_marks_choose_checks_as_they_do_in_a_run() -> None:
    _, text = checks(["-m", "prolog and storage and not ami"])
    names = [line.split()[0] for line in text.splitlines()]
    assert "storage.disk_errors" in names
    assert not {"gpu.no_xid", "storage.mounts_expected", "storage.fsx_utilization"} & set(names)


def test_an_explanation_has_an_example_of_the_finding_and_what_a_healthy_node_has_there() -> None:
    _, text = explain(["gpu.nvlink_active"])
    assert "  for example     GPU 7: NVLink 5 inactive\n  healthy         18 active links" in text
    assert sum(bool(example_of(name)) for name in all_checks()) > 100
