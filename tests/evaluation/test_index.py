"""A prolog runs the packaged checks by their index, without pytest, with the verdicts of `pytest -m prolog`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clusterproof.integrations.slurm.checking import NoVerdict, policy_of, prepared
from clusterproof.integrations.slurm.settings import Settings
from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evaluation import index
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.all_checks import marks_of as names_of_marks
from clusterproof.plugins.evaluation.index import (
    Stale,
    load,
    make_index,
    marks_of,
    of_occasions,
    read_check,
    read_index,
    written,
)
from clusterproof.plugins.evaluation.needs import unloaded
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.transport.gather import replayed
from tests.builders.runs import Runs

CHECKS = str(Path(__file__).parents[2] / "checks")
DEMO = Path(__file__).parents[2] / "fixtures" / "demo"
INDEX = make_index()
NEEDLESS = ("clusterproof.plugins.benchmarks", "clusterproof.plugins.training_run", "clusterproof.checks.run")
MAX_IMPORTED = 250  # the suite's modules
OF_THE_RUN = ("duration_s", "instance_type")  # the demo's targets have a type


@pytest.mark.parametrize("occasions", [("prolog",), ("epilog",), ("prolog", "epilog")], ids=" or ".join)
def test_on_each_node_of_the_demo_it_says_what_pytest_says(runs: Runs, occasions: tuple[str, ...]) -> None:
    runs.run(CHECKS, f"--cluster=replay:{DEMO}", "-m", " or ".join(occasions), f"--results={runs.results_file}")
    of_pytest: dict[str, list[object]] = {}
    for record in runs.records:
        of_pytest.setdefault(record["node"], []).append({**record, **dict.fromkeys(OF_THE_RUN)})
    cluster = resolve(f"replay:{DEMO}")
    types = {target.name: target.instance_type for target in cluster.targets}
    entries = tuple(of_occasions(INDEX, occasions).values())
    for evidence in replayed(DEMO, cluster):
        evaluate = prepared(entries, occasions, Settings(instance_type=types[evidence.node]), NO_POLICY)
        ours = [{**result.to_json(), **dict.fromkeys(OF_THE_RUN)} for result in evaluate(evidence)]
        assert ours == of_pytest[evidence.node]
    assert len(of_pytest) == len(cluster.targets)


def test_a_check_that_is_loaded_by_its_entry_is_the_check() -> None:
    assert {name: load(entry) for name, entry in INDEX.items()} == all_checks()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("{", ""), "cannot be read"),
        (('"of": ', '"of": 1'), "is not of the checks that lie beside it"),
    ],
    ids=["broken", "of other files"],
)
def test_an_index_that_may_be_wrong_is_not_believed(tmp_path: Path, change: tuple[str, str], why: str) -> None:
    file = tmp_path / "checks.json"
    file.write_text(written().replace(*change, 1), encoding="utf-8")
    os.utime(file, (0, 0))  # older than the checks, so it is read
    with pytest.raises(Stale, match=why):
        read_index(file)
    file.write_text(written(), encoding="utf-8")
    assert json.dumps(read_index(file)) == json.dumps(INDEX)


@pytest.mark.long
def test_a_check_that_was_changed_by_hand_is_noticed_by_its_size_or_its_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in index.MADE_OF:
        shutil.copytree(Path(index.PACKAGE) / folder, tmp_path / folder)
    monkeypatch.setattr(index, "PACKAGE", str(tmp_path))
    file, check = tmp_path / "checks.json", tmp_path / "checks" / "gpu" / "test_bus.py"
    file.write_text(written(), encoding="utf-8")
    source, installed = check.read_text(encoding="utf-8"), file.stat().st_mtime
    for text, written_s, is_stale in (
        (source, 0, False),
        (source, 3600, False),
        (source.replace("prolog", "epilog"), 3600, True),
        (source + "\n", 0, True),
    ):
        check.write_text(text, encoding="utf-8")
        os.utime(check, (installed + written_s, installed + written_s))
        with pytest.raises(Stale) if is_stale else contextlib.nullcontext():
            read_index(file)


def test_a_rule_for_a_check_that_there_is_not_is_refused(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[disabled."gpu.gpu_cuont"]\nreason = "none"\nuntil = 9999-12-31\n')
    with pytest.raises(NoVerdict, match=r"ERROR: policy\.toml \[disabled\]: 'gpu.gpu_cuont' is not a check"):
        policy_of(Settings(policy=str(policy)), lambda: frozenset(INDEX))


# What a prolog loads: prints the expensive modules, the number of modules, and those that compile patterns.
LOADS = """
import re, sys
compiled = []
compile_ = re._compiler.compile if hasattr(re, "_compiler") else __import__("sre_compile").compile
def noted(*of):
    frame = sys._getframe(1)
    while frame.f_globals["__name__"].startswith(("re", "clusterproof.plugins.agent.pattern")):
        frame = frame.f_back
    compiled.append(frame.f_globals["__name__"])
    return compile_(*of)
(re._compiler if hasattr(re, "_compiler") else __import__("sre_compile")).compile = noted
from clusterproof.integrations.slurm import checking, main
from clusterproof.integrations.slurm.settings import DEFAULT
from clusterproof.plugins.evaluation.index import read_index
checks = read_index(occasions=("prolog",)).values()
checking.prepared(checks, ("prolog",), DEFAULT, checking.policy_of(DEFAULT, frozenset))
print(sorted(set(sys.argv[1:]) & set(sys.modules)))
print(len(sys.modules))
print(*sorted({name for name in compiled if name.startswith("clusterproof")}))
"""
COSTLY = (
    *("dataclasses", "inspect", "pytest", "_pytest", "statistics", "concurrent.futures", "logging", "threading"),
    *("copy", "datetime", "pathlib", "shlex", "tomllib", "typing", "weakref"),
    *("clusterproof.checks.perf", "clusterproof.plugins.core.nodeset", "clusterproof.plugins.manifest"),
    *("clusterproof.plugins.evidence.perf.facts", "clusterproof.plugins.evidence.kubernetes.facts"),
    *("clusterproof.plugins.evidence.slurm.facts", "clusterproof.plugins.evidence.software.collect_versions"),
)
MAX_MODULES = 206  # for Python 3.11, of which some thirty are loaded at start
COMPILES = (  # what every call reads with them
    "clusterproof.integrations.slurm.settings clusterproof.plugins.catalog clusterproof.plugins.catalog.log_forms "
    "clusterproof.plugins.core.strict"
)


@pytest.mark.long
def test_a_prolog_loads_nothing_that_it_does_not_need_and_compiles_no_pattern_before_there_is_text_for_it() -> None:
    ran = subprocess.run(
        [sys.executable, "-I", "-c", LOADS, *COSTLY], capture_output=True, text=True, check=True, cwd="/"
    )
    costly, count, compiled = ran.stdout.splitlines()
    assert costly == "[]"
    assert int(count) <= MAX_MODULES
    assert compiled == COMPILES


@pytest.mark.long
def test_every_check_is_collected_from_the_index_as_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("def pytest_itemcollected(item): item.obj\n")  # so files are imported

    def collected(*arguments: str) -> list[str]:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", CHECKS, f"--cluster=replay:{DEMO}", "--collect-only", "-q", *arguments],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )
        return ran.stdout.splitlines()[:-1]

    for chosen in (["-k", "ecc or pairwise"], ["-m", "hyperpod_performance_debugger or ami"]):
        assert collected(*chosen) == collected("-p", "other", *chosen)


def test_the_index_says_all_of_a_check_but_its_functions() -> None:
    for name, check in all_checks().items():
        known = read_check(INDEX[name], check.path)
        route = replace(check.route, **dict.fromkeys(index.ON_FUNCTION))
        assert known == replace(check, function=unloaded, route=route)
        assert {mark.name for mark in marks_of(INDEX[name])} == names_of_marks(check)
        assert known.needs == check.needs


@pytest.mark.long
def test_a_run_of_one_check_imports_no_benchmark_no_training_run_and_no_other_check() -> None:
    looks = (
        "import sys; from clusterproof.plugins.command_line.main import main;"
        "code = main(['check', 'demo', '-k', 'no_uncorrected_ecc', '--no-report']);"
        "print(*(name for name in sys.modules if name.startswith('clusterproof')))"
    )
    ran = subprocess.run([sys.executable, "-c", looks], capture_output=True, text=True, check=True)
    ours = ran.stdout.splitlines()[-1].split()
    needless = [name for name in ours if name.startswith(NEEDLESS)]
    assert "clusterproof.checks.gpu.test_memory" in ours
    assert (needless, len(ours) <= MAX_IMPORTED) == ([], True), len(ours)
