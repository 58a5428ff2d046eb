"""Command-line arguments: an option and its path as one word or two, and one line for each mistake."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.options import perf_table, table
from clusterproof.plugins.options.argv import joined_options
from clusterproof.plugins.options.table import Option
from clusterproof.reports.results import read_results
from tests.builders.recordings import boot, node
from tests.builders.runs import Runs
from tests.builders.wheel import ROOT, Installed

pytestmark = pytest.mark.any_user

OPTIONS = [
    option for group in (*table.GROUPS.values(), *perf_table.GROUPS.values()) for option in group if option.has_value
]
OF_PATHS = [option for option in OPTIONS if option.more.get("metavar", "").startswith(("FILE", "DIR", "PATH"))]
FOLDERS = ("--report", "--record", "--run", "--host-root", "--load-path", "--fs-bandwidth")
IDLE = ("--resume", "--baseline", "--save-baseline", "--bundle")  # these need a run of pairs or a name


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.flag)
def test_an_option_and_a_path_that_exists_become_one_word(option: Option, tmp_path: Path) -> None:
    here = str(tmp_path)
    assert joined_options(["-q", option.flag, here, "checks"]) == ["-q", f"{option.flag}={here}", "checks"]
    assert joined_options([f"{option.flag}={here}", here]) == [f"{option.flag}={here}", here]
    assert joined_options([option.flag, f"{here}/not there"]) == [option.flag, f"{here}/not there"]
    assert joined_options(["--", option.flag, here]) == ["--", option.flag, here]


@pytest.mark.parametrize("flag", ["--srun-options", "--mpirun-options", "--meter-options"])
def test_an_option_of_words_takes_one_that_begins_with_a_dash(flag: str) -> None:
    assert joined_options(["-q", flag, "--mpi=pmix", "--redact"]) == ["-q", f"{flag}=--mpi=pmix", "--redact"]
    assert joined_options([flag, "-t 1 -O 0", "checks"]) == [f"{flag}=-t 1 -O 0", "checks"]
    assert joined_options([f"{flag}=--mpi=pmix", "--redact"]) == [f"{flag}=--mpi=pmix", "--redact"]
    assert joined_options(["--", flag, "--redact"]) == ["--", flag, "--redact"]


@pytest.mark.parametrize("flag", ["--cluster", "--nodes", "--exclude"])
def test_a_group_of_clustershells_is_no_file_of_further_words(flag: str) -> None:
    assert joined_options([flag, "@gpu", "checks"]) == [f"{flag}=@gpu", "checks"]
    assert joined_options(["--notify", "@own.args", "@own.args"]) == ["--notify", "@own.args", "@own.args"]


def test_every_option_of_words_is_one_that_takes_dashes() -> None:
    assert {option.flag for option in OPTIONS if option.takes_dashes} == {
        "--srun-options",
        "--mpirun-options",
        "--meter-options",
    }


@pytest.mark.parametrize("program", [("python", "-m", "pytest"), ("clusterproof",)], ids=" ".join)
def test_words_that_begin_with_a_dash_are_no_error(runs: Runs, installed: Installed, program: tuple[str, ...]) -> None:
    runs.checks(test_it="def test_it(node, pytestconfig): assert pytestconfig.option.srun_options == '--mpi=pmix'")
    arguments = [
        "--cluster",
        runs.cluster([node("gpu001", boot=boot())]),
        "--srun-options",
        "--mpi=pmix",
        "--no-report",
    ]
    ran = installed.run(runs.folder, *program, *arguments, ".")
    assert (ran.returncode, "1 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr


def test_a_path_behind_a_switch_or_another_plugins_option_stays_a_test(tmp_path: Path) -> None:
    arguments = ["--redact", str(tmp_path), "--junitxml", str(tmp_path), str(tmp_path), "a\0b"]
    assert joined_options(arguments) == arguments


def existing(option: Option, folder: Path) -> Path:
    """A path for an option where something exists already."""
    path = folder / f"of{option.flag}"
    if option.flag in FOLDERS:
        path.mkdir(parents=True)
        (path / "hostfile").write_text("gpu001 slots=8\n")  # a run's folder contains a file
    elif option.flag == "--history":
        sqlite3.connect(path).close()
    else:
        path.write_text("# one that is empty is refused\n" if option.flag == "--policy" else "")
    return path


@pytest.mark.parametrize("is_inside", [False, True], ids=["outside", "inside"])
@pytest.mark.parametrize("between", [" ", "="], ids=["two words", "one word"])
def test_every_option_takes_a_path_in_both_forms(
    runs: Runs, installed: Installed, tmp_path_factory: pytest.TempPathFactory, is_inside: bool, between: str
) -> None:
    runs.checks(test_it="def test_it(node): assert node.boot.kernel")
    folder = runs.folder / "kept" if is_inside else tmp_path_factory.mktemp("outside")
    folder.mkdir(exist_ok=True)
    arguments = ["--cluster", runs.cluster([node("gpu001", boot=boot())])]
    for option in OF_PATHS:
        if option.flag not in IDLE:
            path = existing(option, folder)
            arguments += [option.flag, str(path)] if between == " " else [f"{option.flag}={path}"]
    ran = installed.pytest(runs.folder, *arguments)
    assert (ran.returncode, "1 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr
    assert f"rootdir: {runs.folder}\nconfigfile: pytest.toml\n" in ran.stdout
    assert len(read_results(folder / "of--results")) == 1
    assert (folder / "of--report" / "report.html").exists()
    assert (folder / "of--record" / "cluster.json").exists()


@pytest.mark.parametrize("words", [["--report"], ["--no-report", "--record"]], ids=["--report", "--record"])
def test_in_the_checkout_a_path_that_exists_misleads_nobody(
    tmp_path: Path, installed: Installed, words: list[str]
) -> None:
    words = ["--cluster", "demo", "--nodes", "gpu001", "-k", "ecc", *words, str(tmp_path)]
    ran = installed.run(ROOT, "python", "-m", "pytest", "-p", "no:cacheprovider", *words, HOME=str(tmp_path))
    assert f"rootdir: {ROOT}\nconfigfile: pytest.toml\n" in ran.stdout, ran.stdout + ran.stderr
    assert ran.returncode == 0


_EXPECTED = "expected not OR left parenthesis OR identifier"
_NAMES = (
    "expected names of letters, digits, '.', '_' and '-', separated by commas, with ranges in brackets: "
    "gpu[001-016,020]"
)
MISTAKES = [
    (("--polcy", "x"), "ERROR: --polcy is not an option (did you mean --policy?); clusterproof --help-all lists them"),
    (("--polcy=x",), "ERROR: --polcy is not an option (did you mean --policy?); clusterproof --help-all lists them"),
    (("--incomplete=maybe",), "ERROR: --incomplete is 'maybe'; expected gate, ignore or fail"),
    (("--incomplete=ingore",), "ERROR: --incomplete is 'ingore' (did you mean ignore?); expected gate, ignore or fail"),
    (("--fanout", "many"), "ERROR: --fanout is 'many'; expected a whole number"),
    (("--nodes",), "ERROR: --nodes has no value; expected one argument"),
    (
        ("-m", "gpuu"),
        "ERROR: -m 'gpuu': no mark is called 'gpuu' (did you mean gpu?); clusterproof --markers lists them",
    ),
    (("-m", "gpu and"), f"ERROR: -m 'gpu and': {_EXPECTED}; got end of input"),
    (("-k", "memlock and"), f"ERROR: -k 'memlock and': {_EXPECTED}; got end of input"),
    (("--nodes", ""), "ERROR: --nodes is empty; expected NODESET"),
    (
        ("--exclude", "", "--exclude", "gpu001"),
        "ERROR: --exclude: ',gpu001' has a comma with no name beside it; expected the form gpu[001-016,020]",
    ),
    (("--policy=",), "ERROR: --policy is empty; expected FILE"),
    (("--notify", ""), "ERROR: --notify is empty; expected URL"),
]
OF_THE_COMMAND = [  # it knows that no other tests are meant
    (("-n", "gpu"), "ERROR: --numprocesses is 'gpu'; expected a whole number, auto or logical"),
    (
        ("-m", "gpuu", "-n", "2"),
        "ERROR: -m 'gpuu': no mark is called 'gpuu' (did you mean gpu?); clusterproof --markers lists them",
    ),
    (("--color=purple",), "ERROR: --color is 'purple'; expected yes, no or auto"),
    (("--maxfail=many",), "ERROR: --maxfail is 'many'; expected a whole number"),
    (("--nodes", "@gpu"), f"ERROR: --nodes: '@gpu' has '@' in it; {_NAMES}"),
    (("no_such.py",), "ERROR: file or directory not found: no_such.py"),
]


@pytest.fixture(autouse=True)
def of_one_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore plugin autoloading, which the command turns off, after a test that calls it in this process."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.mark.long
@pytest.mark.parametrize(("words", "line"), [*MISTAKES, *OF_THE_COMMAND])
def test_a_mistake_is_one_line(words: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "demo", *words]) == 4
    shown = capsys.readouterr()
    assert (shown.out, shown.err.split()) == ("", line.split())


@pytest.mark.parametrize(("words", "line"), MISTAKES)
def test_pytest_answers_a_mistake_beside_a_cluster_so_too(runs: Runs, words: tuple[str, ...], line: str) -> None:
    assert runs.run("--cluster", "demo", *words).errlines[:1] == [line]


def test_a_cluster_without_a_name_is_asked_for(runs: Runs) -> None:
    shown = runs.run("--cluster")
    assert shown.errlines[0].startswith("ERROR: no cluster to validate; say which: --cluster local, demo")


def test_a_run_of_other_tests_keeps_the_words_of_pytest(runs: Runs) -> None:
    assert "usage: " in runs.run("--polcy").stderr.str()


@pytest.mark.long
def test_the_cache_of_pytest_may_be_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", "demo", "-p", "no:cacheprovider", "-k", "gpu_answers", "--no-report"]
    assert main(arguments) == 1
    assert "Unknown config option" not in capfd.readouterr().err


@pytest.mark.long
def test_what_is_given_twice_of_nodes_and_expectations_is_taken_together(capfd: pytest.CaptureFixture[str]) -> None:
    twice = ["--nodes=gpu001", "--nodes", "gpu[004,006]", "--exclude=gpu004", "--exclude=gpu006"]
    assert main(["check", "demo", *twice, "-k", "memlock", "--no-report"]) == 0
    assert "cluster: demo: 1 node (gpu001)" in capfd.readouterr().out
    assert main(["check", "demo", "--expect=gpus=8", "--expect=gpus=4", "--no-report"]) == 4
    assert "gives gpus twice" in capfd.readouterr().err
