"""The command `clusterproof`: its short help, `check` and `init`."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterproof.plugins.command_line.init import TEMPLATES, template
from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.command_line.overview import short_help, shortest_help
from clusterproof.plugins.command_line.subcommands import NAMES
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.options import perf_table, table
from clusterproof.plugins.policy import read_policy


def test_the_help_fits_on_a_screen() -> None:
    lines = short_help(120).splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 120


def test_the_help_goes_on_under_its_own_column_where_the_terminal_is_narrow() -> None:
    wide, narrow = short_help(120), short_help(80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.split() == wide.split()
    assert "\n  asg:NAME                             the instances of an Auto Scaling group\n" in narrow
    assert f"\n  clusterproof --run PATH              evaluate a training run by its traces,\n{' ' * 39}logs" in narrow


def test_the_command_alone_says_in_24_lines_of_80_columns_how_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 4  # nothing was checked
    output = capsys.readouterr().out
    assert output == shortest_help()
    assert len(output.splitlines()) < 24
    assert max(map(len, output.splitlines())) <= 80
    assert set(re.findall(r"clusterproof (\w+)", output)) >= set(NAMES) - {"version"}


@pytest.mark.parametrize(
    ("words", "begin"),
    [
        (["version"], "clusterproof 0."),
        (["--version"], "clusterproof 0."),
        (["-V"], "clusterproof 0."),
        (["help"], "clusterproof: proves"),
        (["--help-all"], "usage: clusterproof [options]"),
    ],
)
def test_help_and_version_are_commands(words: list[str], begin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out.startswith(begin)


@pytest.mark.parametrize("words", [["--help-all"], ["doctor"]])
def test_a_user_without_a_name_and_a_home_is_answered_too(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 3_000_000_000)  # as a container may be started by
    assert main(words) == 0


def test_help_of_a_command_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["help", "explain"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("usage: clusterproof explain")


def test_help_of_check_has_every_option_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "check"]) == 0
    text = capsys.readouterr().out
    flags = {option.flag for group in (*table.GROUPS.values(), *perf_table.GROUPS.values()) for option in group}
    assert text.startswith("usage: clusterproof check X")
    assert flags - set(re.findall(r"^  (--[a-z0-9-]+)", text, re.MULTILINE)) == {"--cluster", "--run"}


def test_the_help_names_every_command() -> None:
    assert set(re.findall(r"^  clusterproof (\w+)", short_help(), re.MULTILINE)) == set(NAMES)


def test_the_help_names_no_option_that_does_not_exist() -> None:
    groups = (*table.GROUPS.values(), *perf_table.GROUPS.values())
    known = {option.flag for group in groups for option in group} | {"--help-all", "--cluster", "--from"}
    assert set(re.findall(r"--[a-z][a-z-]+", short_help())) <= known


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["check", "--help"], ["check", "demo", "--help"]])
def test_help_is_the_short_one_whatever_else_is_said(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out == short_help()


# init


def uncommented(text: str) -> str:
    """A template with every setting uncommented."""
    return re.sub(r"^#= ?", "", text, flags=re.MULTILINE)


def test_init_writes_both_files_and_says_what_comes_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(TEMPLATES)
    assert "clusterproof check ./cluster.toml" in capsys.readouterr().out


def test_init_makes_the_folder_that_it_is_given_and_says_how_to_go_on_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    folder = tmp_path / "my cluster"
    assert main(["init", str(folder)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == sorted(TEMPLATES)
    assert f"then: cd '{folder}' && clusterproof check ./cluster.toml" in capsys.readouterr().out


def test_init_leaves_no_half_of_a_file_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))  # as a quota that is full
    try:
        code = main(["init", str(tmp_path / "new")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 4
    assert list((tmp_path / "new").iterdir()) == []


def test_init_says_where_the_program_is_that_no_path_leads_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["init", str(tmp_path)]) == 0
    assert f"&& {Path(sys.executable).with_name('clusterproof')} check ./cluster.toml" in capsys.readouterr().out


@pytest.mark.parametrize("there", sorted(TEMPLATES))
def test_init_overwrites_nothing(there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / there).write_text("mine")
    assert main(["init", str(tmp_path)]) == 4
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"
    assert f"{there} is there already: nothing was written" in capsys.readouterr().err


@pytest.mark.parametrize("form", [str, uncommented])
def test_the_inventory_of_init_is_understood_as_it_is_and_whole(form: Callable[[str], str], tmp_path: Path) -> None:
    for name in ("id_ed25519", "known_hosts"):
        (tmp_path / name).touch()
    path = tmp_path / "cluster.toml"
    path.write_text(form(template("cluster.toml")).replace("~/.ssh", str(tmp_path)))
    assert [target.name for target in resolve(str(path)).targets] == ["gpu001", "gpu002", "gpu003", "gpu004"]


@pytest.mark.parametrize("form", [str, uncommented])
def test_the_policy_of_init_is_understood_as_it_is_and_whole(form: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "clusterproof.toml"
    path.write_text(form(template("clusterproof.toml")))
    assert bool(read_policy(path).expect) is (form is uncommented)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["version", "extra"], "clusterproof: unexpected argument 'extra'; expected nothing after version"),
        (["--version", "extra"], "clusterproof: unexpected argument 'extra'; expected nothing after --version"),
        (["help", "check", "extra"], "clusterproof: unexpected argument 'extra'; expected nothing after help check"),
        (["check", "demo", "--cluster", "local"], "clusterproof: 'demo' and --cluster name two clusters; expected one"),
        (["init", ""], "clusterproof init: DIR is empty; clusterproof init --help lists what there is"),
        (
            ["init", "--from-nhc="],
            "clusterproof init: --from-nhc is empty; clusterproof init --help lists what there is",
        ),
        (
            ["watch", "--notify="],
            "clusterproof watch: --notify is empty; clusterproof watch --help lists what there is",
        ),
        (["watch", "--heartbeat="], "clusterproof watch: --heartbeat is empty; clusterproof watch --help lists what"),
        (["watch", "--nodes="], "clusterproof watch: --nodes is empty; clusterproof watch --help lists what there is"),
        (
            ["accept", "x", "--again", ""],
            "clusterproof accept: --again is empty; clusterproof accept --help lists what",
        ),
        (["history", "--history="], "clusterproof history: --history is empty; clusterproof history --help lists what"),
    ],
)
def test_a_word_too_many_or_an_empty_one_is_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code: object
    try:
        code = main(words)
    except SystemExit as end:
        code = end.code
    assert code == 4
    assert capsys.readouterr().err.startswith(line)


REFUSED = "a\x1b[31m.toml"


@pytest.mark.parametrize(
    "words",
    [
        [REFUSED],
        ["demo", f"--policy={REFUSED}"],
        ["demo", f"./{REFUSED}::x"],
        ["demo", f"--fanout={REFUSED}"],
        ["demo", f"--{REFUSED}"],
        ["demo", "-k", f"{REFUSED} ("],
    ],
)
def test_the_name_of_a_file_that_is_refused_steers_no_terminal(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(REFUSED).write_text("no TOML")
    assert main(["check", *words]) == 4
    out, err = capfd.readouterr()
    assert (out, "\x1b" in err, r"\x1b[31m" in err) == ("", False, True)


@pytest.mark.long
@pytest.mark.parametrize("words", [["--cluster", f"./{REFUSED}"], ["--cluster", "demo", f"--{REFUSED}"]])
def test_a_word_that_pytest_itself_refuses_steers_no_terminal(words: list[str], tmp_path: Path) -> None:
    (tmp_path / REFUSED).write_text("no TOML")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (ran.returncode, "\x1b" in ran.stderr, r"\x1b[31m" in ran.stderr) == (4, False, True)


@pytest.mark.long
def test_a_manifest_that_may_not_be_written_is_said_before_a_node_is_asked(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["manifest", "--from", "demo", "--out", "/proc/golden.toml"]) == 4
    err = capfd.readouterr().err
    assert err.startswith("ERROR: /proc/golden.toml: No such file or directory; expected a file that may be written")


@pytest.mark.parametrize("option", ["-v", "-Werror"])
def test_a_run_warns_of_nothing_in_itself(option: str, tmp_path: Path) -> None:
    program = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"
    words = ["check", "demo", "--nodes", "gpu001", "-k", "gpu_answers", "--no-report", "-p", "no:cacheprovider", option]
    ran = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr, "warning" in ran.stdout) == (0, "", False), ran.stdout + ran.stderr
