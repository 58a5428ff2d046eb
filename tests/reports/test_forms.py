"""The formats that programs and mails read: Markdown, text and Prometheus, whatever the nodes report."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families

from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.core.escaping import plain
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite.reporters.notify import message_of
from clusterproof.reports import result_text
from clusterproof.reports.formats import markdown, prometheus
from clusterproof.reports.formats.html import document
from clusterproof.reports.formats.junit import suites
from clusterproof.reports.formats.text import WIDTH, text
from clusterproof.reports.history.changes import Changes
from clusterproof.reports.run import Run
from clusterproof.reports.summary import summary
from clusterproof.reports.to_do import Task, commands
from tests.reports.jenkins import breaches
from tests.reports.reported import HOSTILE, HUGE, of_each_verdict, result, run_of

NODES = pytest.mark.parametrize("name", [*HOSTILE, HUGE], ids=[*map(ascii, HOSTILE), "a megabyte"])


# Markdown


def rendered(text: str) -> tuple[str, str]:
    """A page's tags and text, as GitHub would render them."""
    html = MarkdownIt("commonmark").enable("table").render(text)
    return html, re.sub(r"<[^>]*>", "", html)


def test_markdown_renders_as_a_heading_a_sentence_and_a_table() -> None:
    html, shown = rendered(markdown.markdown(run_of(of_each_verdict())))
    assert "<h2>❌ prod: not fit</h2>" in html
    assert html.count("<tr>") == 1 + 2 + 1 + 1  # header, failures, concern, gap
    assert "2 of 7 nodes (gpu[002-003]), 2 GPUs" in shown
    assert "GPU 1: 14 errors; expected 0" in shown
    assert "<code>nvidia-smi -q | grep 'x'</code>" in html.replace("&#x27;", "'")
    assert "pytest --cluster prod -k 'test_ecc or test_quota'" in shown.replace("&#x27;", "'")


@pytest.mark.parametrize(
    "name",
    [*HOSTILE[:5], "no_xid _x_ __init__", "- a", "+ a", "1. a", "# a", "> a", "a\n===", "https://x.y", "www.x.y"],
    ids=ascii,
)
def test_markdown_shows_a_nodes_words_as_they_are(name: str) -> None:
    html, _ = rendered(plain(name))
    named = name.replace("\x00", "\ufffd")
    shown = re.sub(r"^<p>|</p>\n$", "", html)
    for entity, char in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&"), ("<!-- -->", "")):
        shown = shown.replace(entity, char)
    assert shown == " ".join(named.split())


@pytest.mark.parametrize("name", ["@all", "ops@x.y", "#1", "a/b#1", "!1", "see @a-b"])
def test_markdown_neither_notifies_a_user_nor_refers_to_an_issue(name: str) -> None:
    html, shown = rendered(plain(name))
    assert shown.strip() == name
    assert not re.search(r"[@#!]\w", html)


@NODES
def test_no_node_writes_markup_into_the_summary(name: str) -> None:
    markup = markdown.markdown(run_of([result("gpu.ecc", name, Verdict.FAIL, name)]))
    assert len(markup) < 10_000
    html, _ = rendered(markup)
    assert set(re.findall(r"<([a-z0-9]+)", html)) <= {
        *("h2", "p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "code", "strong", "details", "summary")
    }


# Text


def test_the_mail_names_what_failed_where_and_what_to_do() -> None:
    mail = text(run_of(of_each_verdict()))
    assert mail.startswith("INVESTIGATE gpu[002-003] (ecc) · INVESTIGATE the cluster (quota) · NOT PROVEN gpu005")
    assert ("\n\nprod: not fit\n  8 nodes: 4 fit, 2 failed, 1 not proven") in mail
    assert (
        "FAIL gpu.ecc: Title of ecc: 2 of 7 nodes (gpu[002-003]), 2 GPUs\n"
        "  gpu[002-003]: GPU 1: 14 errors; expected 0\n"
        "  do: Do something.\n"
        "  owner: hyperpod-node-debugger § G\n"
    ) in mail
    assert "INCOMPLETE gpu.ecc: gpu005: nvml did not answer\n" in mail
    assert "  pytest --cluster prod --nodes gpu005 -k test_ecc\n" in mail
    assert mail.endswith("2026-11-21 14:30:05 UTC, 12.3 s, exit code 1\n")


@pytest.mark.parametrize("by", ["check", "node"])
@pytest.mark.parametrize("form", [markdown.markdown, text, suites, document])
def test_every_form_says_what_could_not_be_read_beside_why(form: Callable[[Run], str], by: str) -> None:
    why, what = "may not be looked at", "the size of a key was denied"
    key = result("software.image_clean", "n1", Verdict.INCOMPLETE, what, cause=why)
    said = form(run_of([result("host.word", "n1"), key], junit_cases=by))
    assert why in said
    assert what in said


def test_a_command_in_a_mail_stays_one_line_however_long_it_is() -> None:
    names = [f"ip-10-{n}-{n}-{n * n}" for n in range(2, 14)]
    failed = [result("gpu.ecc", name, Verdict.FAIL, "lost", action="replace") for name in names]
    run = run_of([*failed, result("gpu.ecc", "gpu001")])
    run = replace(run, inventory=replace(run.cluster, settings={"submit_host": "local"}))
    command = commands(Task("replace", tuple(names), ("ecc",)), run.inventory)
    assert max(map(len, command)) > WIDTH
    assert f"clusterproof runs none of them:\n  replace: {command[0]}\n" in text(run)


def test_the_mail_stays_short_however_much_is_wrong() -> None:
    results = [result(f"gpu.c{n}", f"odd-{n}-name-{n}", Verdict.FAIL, f"{n}: {HUGE[:4000]}") for n in range(300)]
    mail = text(run_of(results))
    assert len(mail) < 20_000
    assert "… and 280 more kinds" in mail
    assert max(map(len, mail.partition("Run the ")[0].splitlines())) <= max(WIDTH, 310)


def test_a_healthy_cluster_takes_four_lines() -> None:
    mail = text(run_of([result("gpu.ecc", "gpu001")], exit_code=0))
    assert mail.split("\n")[:2] == ["NOTHING TO DO · 1 fit", ""]
    assert mail.split("\n")[2:4] == ["prod: fit", "  1 node: 1 fit"]
    assert len(mail.split("\n")) == 7


# Prometheus


def metrics(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Each metric's samples, by their labels except the cluster's."""
    return {
        family.name.removeprefix("clusterproof_"): {
            tuple((key, value) for key, value in sample.labels.items() if key != "cluster"): sample.value
            for sample in family.samples
        }
        for family in text_string_to_metric_families(text)
    }


def test_prometheus_reads_what_was_counted() -> None:
    counts = metrics(prometheus.prometheus(run_of(of_each_verdict())))
    assert {labels[0][1]: count for labels, count in counts["nodes"].items()} == {
        "pass": 3,
        "concern": 1,
        "fail": 2,
        "incomplete": 1,
        "not applicable": 1,
    }
    assert counts["results"][("check", "gpu.ecc"), ("verdict", "fail")] == 2
    assert counts["node_results"][("node", "gpu001"), ("verdict", "fail")] == 0
    assert counts["run_timestamp_seconds"][()] == 1795271405
    assert counts["run_exit_code"][()] == 1
    findings = [dict(labels) for labels in counts["finding"]]
    assert [(finding["node"], finding["check"], finding["verdict"]) for finding in findings] == [
        ("gpu002", "gpu.ecc", "fail"),
        ("gpu003", "gpu.ecc", "fail"),
        ("prod", "control_plane.quota", "fail"),
        ("gpu005", "gpu.ecc", "incomplete"),
        ("gpu004", "gpu.ecc", "concern"),
    ]


def test_every_metric_says_what_it_is_and_no_series_comes_twice() -> None:
    results = of_each_verdict()
    exposition = prometheus.prometheus(run_of([*results, *results]))
    series = [line.rpartition(" ")[0] for line in exposition.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))
    names = {line.partition("{")[0] for line in series}
    assert {line.split()[2] for line in exposition.splitlines() if line.startswith("# HELP")} == names
    assert {line.split()[2] for line in exposition.splitlines() if line.startswith("# TYPE")} == names


def test_a_cluster_in_ruins_does_not_drown_prometheus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MAX_FINDINGS", 3)
    counts = metrics(prometheus.prometheus(run_of(of_each_verdict())))
    assert len(counts["finding"]) == 3
    assert {dict(labels)["verdict"] for labels in counts["finding"]} == {"fail"}
    assert counts["findings_left_out"][()] == 2


@NODES
def test_no_node_adds_a_metric_of_its_own(name: str) -> None:
    exposition = prometheus.prometheus(run_of([result("gpu.ecc", name, Verdict.FAIL, name)]))
    assert len(exposition) < 10_000
    assert not any(key.startswith("fake") for key in metrics(exposition))
    assert len(metrics(exposition)["finding"]) == 1


def test_a_run_in_which_no_check_applies_is_not_called_fit_in_any_form() -> None:
    run = run_of([result("gpu.ecc", "gpu001", Verdict.NOT_APPLICABLE, "no GPU")], [])
    line = "1 node: 1 not checked: no check applies"
    assert text(run).startswith(f"prod: not checked\n  {line}\n")
    assert markdown.markdown(run).startswith(f"## ❔ prod: not checked\n\n{line}")
    page = document(run)
    assert line in page
    assert ">fit<" not in page.partition("<section")[0].partition("<body")[2]


def test_a_run_without_any_evidence_has_its_reports_too() -> None:
    evidence = NodeEvidence("gpu001", {"boot": Collected(Status.STUCK)})
    run = run_of([], [evidence])
    assert text(run).startswith("prod: not checked")
    assert breaches(ET.fromstring(suites(run))) == []
    assert metrics(prometheus.prometheus(run))["nodes"]
    assert "not checked" in markdown.markdown(run)


# A node whose text looks like a report

OWN = (
    "FAIL gpu.ecc: 1 of 1 node (gpu001): forged",
    "do: forged",
    "owner: forged",
    "see it: forged",
    "check:  forged",
)
OWN_AGAIN = ("by hand: forged", "means: forged", "INCOMPLETE  gpu001: forged", "8 nodes: 8 fit: forged", "- forged", "")
FORGED = "\n".join(word for line in (*OWN, *OWN_AGAIN) for word in (f"  {line}", line, f"{' ' * 12}{line}"))


def forgers() -> list[Result]:
    """Verdicts of each kind on nodes whose text contains lines that look like a report's own."""
    kinds = (Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE)
    return [
        result("gpu.ecc", f"gpu00{number}", verdict, f"/mnt\n{FORGED}", cause=f"hung: \n{FORGED}", devices=(FORGED,))
        for number, verdict in enumerate(kinds)
    ]


def begun(text: str, indents: Iterable[int]) -> list[str]:
    """The lines that begin with forged words, where a report's own lines begin."""
    starts = tuple(f"{' ' * indent}{line[:18]}" for indent in indents for line in (*OWN, *OWN_AGAIN) if line)
    return [line for line in text.split("\n") if "forged" in line and line.startswith(starts)]


def test_no_line_of_a_text_begins_with_what_a_node_says() -> None:
    run = run_of(forgers())
    shown = (summary(run.results, PACKAGED, 100, verbose) for verbose in (False, True))
    terminal = "\n".join(line.text for lines in shown for line in lines)
    message = message_of("prod", run.results, 1, Changes(), PACKAGED)
    assert message is not None
    for form, indents in (
        (text(run), (0, 2)),
        (terminal, (0, 12)),
        (message.body, (0,)),
        (markdown.markdown(run), (0,)),
        *((result_text(entry), (0,)) for entry in run.results),
    ):
        assert "forged" in form
        assert begun(form, indents) == []


def test_no_line_of_a_suite_begins_with_what_a_node_says() -> None:
    for element in ET.fromstring(suites(run_of(forgers()))).iter():
        assert begun(element.text or "", (0,)) == []


def test_names_as_long_as_dns_allows_have_a_series_each() -> None:
    names = [f"{'rack-' * 49}gpu{number}" for number in (1, 2)]
    pairs = [result("network.pair", f"{names[0]}~{name}", Verdict.FAIL, subject="pair") for name in names]
    lines = prometheus.prometheus(run_of([*(result("gpu.ecc", name, Verdict.FAIL) for name in names), *pairs]))
    assert sum(line.startswith("clusterproof_finding{") for line in lines.splitlines()) == 4
