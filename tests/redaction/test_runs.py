"""`--redact` on whole runs: of the demo cluster, of a replay, of this machine."""

from __future__ import annotations

import json
import re
import socket
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.core.evidence import load
from clusterproof.reports.results import read_results
from tests.builders.recordings import node, unreached
from tests.builders.runs import ALONE_OR_NOT, LIGHT, ROOT, Runs, saying
from tests.suite.reporters.bundles import contents


def names_in(folder: Path) -> set[str]:
    """Every name in a recording, found without using the code under test."""
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.json")]
    keys = "node|hostname|serial|uuid|boot_id|name|instance_id|image_id"
    names = set(re.findall(rf'"(?:{keys})": "([^"]+)"', "".join(texts)))
    names |= set(re.findall(r"\b10\.\d+\.\d+\.\d+\b|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "".join(texts)))
    devices = re.compile(r"rdmap\d+s0|NVIDIA .*|[a-z]+\d{0,2}|nvme\dn1|C\d|POLL|nvidia-\w+|0+|[0-]+|/var/(log|crash)")
    return {name.removeprefix("GPU-") for name in names if not devices.fullmatch(name) and name != "rdmap"}


@pytest.mark.parametrize("workers", ALONE_OR_NOT)
def test_the_demo_cluster_has_the_same_verdicts_and_no_name_anywhere(runs: Runs, workers: list[str]) -> None:
    ended = {}
    for option in ([], ["--redact"]):
        ended[bool(option)] = runs.run(
            *("--cluster=demo", str(ROOT / "checks"), f"--rootdir={ROOT}", "-p", "no:cacheprovider", "-v", "-rA"),
            *("--results=results.jsonl", f"--record=kept{bool(option)}", "--junitxml=junit.xml", "--html=page.html"),
            *("-o", "strict_markers=true", "--import-mode=importlib", *option, *workers),
        )
        runs.results_file.rename(runs.folder / f"results{bool(option)}.jsonl")
    plain, hidden = (read_results(runs.folder / f"results{option}.jsonl") for option in (False, True))
    word = {f"gpu{number:03d}": f"node{number:02d}" for number in range(1, 17)} | {"demo": "cluster"}
    assert {(result.check, word[result.node], result.verdict) for result in plain} == {
        (result.check, result.node, result.verdict) for result in hidden
    }
    assert len(hidden) == len(plain) > 400
    names = names_in(ROOT / "fixtures" / "demo")
    assert {"gpu001", "gpu016"} < names
    assert len(names) > 200
    output = "\n".join(line for line in ended[True].outlines if not line.startswith(("rootdir", "configfile")))
    kept = "".join(path.read_text(encoding="utf-8") for path in sorted((runs.folder / "keptTrue").rglob("*.json")))
    files = [runs.folder / name for name in ("resultsTrue.jsonl", "junit.xml", "page.html")]
    for written in (output, kept, *(file.read_text(encoding="utf-8") for file in files)):
        assert written
        assert not [name for name in names if name in written]


def test_a_redacted_recording_replays_with_the_same_verdicts(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    nodes = [saying("gpu001", "bad"), saying("gpu002", "concern"), unreached("gpu003")]
    runs.over(nodes, "--redact", "--record", "kept")
    before = runs.verdicts
    runs.run("--cluster=replay:kept", "--results", str(runs.results_file))
    assert runs.verdicts == before
    assert set(before) == {"node1", "node2", "node3"}
    recorded = [load(path.read_bytes()) for path in sorted((runs.folder / "kept" / "nodes").iterdir())]
    assert [evidence.node for evidence in recorded] == ["node1", "node2", "node3"]


def test_a_redacted_recording_lies_beside_nothing_that_has_names(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    runs.over([saying("gpu001", "pass")], "--record", "kept")
    run = runs.over([saying("gpu001", "pass")], "--redact", "--record", "kept")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stderr.fnmatch_lines(["*--record kept with --redact: files are there*expected a new folder"])


@pytest.mark.parametrize("workers", ALONE_OR_NOT)
def test_a_mount_that_is_named_like_its_server_is_the_one_that_the_policy_expects(
    runs: Runs, workers: list[str]
) -> None:
    mounts = [{"path": "/mnt/filer7-data", "type": "nfs4", "source": "filer7:/export"}]
    runs.checks(test_it="def test_it(node): assert set(node.policy.mounts) <= set(node.mount_points)")
    (runs.folder / "site.toml").write_text('mounts.expected = ["/mnt/filer7-data"]\n', encoding="utf-8")
    run = runs.over([node("gpu001", mounts={"mounts": mounts})], "--redact", "--policy=site.toml", *workers)
    assert run.ret == 0, run.stdout.str()


def test_the_cluster_and_this_machine_are_not_named(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD_URL", "https://ci7.example.com/job")
    monkeypatch.setattr("platform.node", lambda: "operators-laptop")
    runs.checks(test_it=LIGHT)
    run = runs.run(
        *("--cluster", runs.cluster([saying("gpu001", "pass")], name="prod-west"), "--redact"),
        *("--junitxml=junit.xml", "--html=page.html"),
    )
    page = (runs.folder / "page.html").read_text(encoding="utf-8")
    junit = (runs.folder / "junit.xml").read_text(encoding="utf-8")
    for text in (run.stdout.str(), page, junit):
        assert "prod-west" not in text
        assert "operators-laptop" not in text
        assert "ci7.example.com" not in text
    assert 'hostname="redacted"' in junit


def test_a_kernel_and_plugins_of_this_machines_own_are_not_named(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD_URL", "https://ci7.example.com/job")
    monkeypatch.setattr("platform.release", lambda: "6.8.0-acme7")
    monkeypatch.setattr("platform.platform", lambda *_: "Linux-6.8.0-acme7-x86_64")
    runs.checks(test_it=LIGHT)
    run = runs.over([saying("gpu001", "pass")], "--redact", "-v", "--html=page.html", "--bundle=b.tar.zst")
    about = json.loads(contents(runs.folder / "b.tar.zst")["bundle.json"])
    assert about["versions"]["system"].startswith("Linux 6.8.0-")
    for text in (run.stdout.str(), (runs.folder / "page.html").read_text(encoding="utf-8"), json.dumps(about)):
        assert "acme7" not in text
        assert "ci7.example.com" not in text
        assert sys.executable not in text


def test_this_machine_as_the_cluster_is_not_named_either(runs: Runs) -> None:
    runs.checks(test_it="def test_it(node): assert node.boot.hostname == node.name")
    run = runs.run("--cluster=local", "--redact", "--results", str(runs.results_file), "--record=kept")
    assert run.ret == 0, run.stdout.str()
    assert set(runs.verdicts) == {"node1"}
    kept = (runs.folder / "kept" / "nodes" / "node1.json").read_text(encoding="utf-8")
    assert f'"{socket.gethostname()}"' not in kept
