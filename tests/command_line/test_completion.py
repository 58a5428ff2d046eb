"""Real shells complete clusterproof's arguments; script and man page match the command lines."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.command_line.subcommands import FILES, MAN_PAGE
from scripts.generators import commands

# A shell at a terminal in which `clusterproof` prints the arguments it was called with.
SHELLS = {
    "bash": (["bash", "--norc", "-i"], "PS1='READY''> '; clusterproof() { echo \"RAN <$*>\"; }; . %s"),
    "zsh": (
        ["zsh", "-f", "-i"],
        "PS1='READY''> '; autoload compinit; compinit -u -D; clusterproof() { echo \"RAN <$*>\"; }; eval \"$(cat %s)\"",
    ),
    "fish": (
        ["fish", "--no-config", "-i"],
        "function fish_prompt; echo -n READY'> '; end; function clusterproof; echo \"RAN <$argv>\"; end; source %s",
    ),
}
TYPED = (  # the text typed before the key, and the command that then runs
    ("doc", "doctor"),
    ("explain gpu.no_unc", "explain gpu.no_uncorrected_ecc"),
    ("checks -m hyperpod_nc", "checks -m hyperpod_nccl"),
    ("check demo --redac", "check demo --redact"),
    ("check demo --concerns ig", "check demo --concerns ignore"),
    ("completion zs", "completion zsh"),
)


class Terminal:
    """A shell at a pseudo-terminal."""

    def __init__(self, command: list[str]) -> None:
        self.pid, self.end = pty.fork()
        if not self.pid:
            os.execvpe(command[0], command, {**os.environ, "TERM": "dumb", "HISTFILE": "", "LC_ALL": "C.UTF-8"})
        self.said = ""

    def type(self, keys: str) -> None:
        os.write(self.end, keys.encode())

    def wait_for(self, word: str) -> str:
        """Its output up to that word. If the shell prints no more, the test runner's own limit ends the test."""
        while word not in self.said:
            try:
                self.said += os.read(self.end, 65_536).decode(errors="replace")
            except OSError:
                pytest.fail(f"the shell ended; it said {self.said!r}; expected {word!r}")
        before, _, self.said = self.said.partition(word)
        return before

    def close(self) -> None:
        os.close(self.end)
        os.waitpid(self.pid, 0)


@pytest.mark.long
@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_completes_commands_options_marks_and_checks(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}: apt-get install {shell}")
    script = tmp_path / FILES[shell]
    script.write_text(commands.completion(shell))
    command, begin = SHELLS[shell]
    terminal = Terminal(command)
    try:
        terminal.type(begin % script + "\n")
        for typed, ran in TYPED:
            terminal.wait_for("READY> ")
            terminal.type(f"clusterproof {typed}\t\n")
            terminal.wait_for("RAN <")
            assert terminal.wait_for(">").strip() == ran
    finally:
        terminal.close()


@pytest.mark.long
@pytest.mark.parametrize("name", [*FILES.values(), MAN_PAGE])
def test_what_is_shipped_is_made_of_the_command_lines_as_they_are(name: str) -> None:
    shipped = (commands.FOLDER / name).read_text(encoding="utf-8")
    assert shipped == commands.documents()[name], "expected: scripts/generate was run"


@pytest.mark.parametrize("shell", FILES)
def test_the_script_is_printed_for_eval(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == (commands.FOLDER / FILES[shell]).read_text(encoding="utf-8")


def test_an_unknown_shell_is_refused_with_those_that_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["completion", "tcsh"])
    assert end.value.code == 4
    assert "choose from" in capsys.readouterr().err


@pytest.mark.long
def test_the_man_page_is_one_that_man_shows_without_a_warning() -> None:
    if not shutil.which("man"):
        pytest.skip("needs man: apt-get install man-db")
    command = ["man", "--warnings", "-E", "UTF-8", "-l", str(commands.FOLDER / MAN_PAGE)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "MANWIDTH": "100"})
    assert shown.stderr == ""
    for words_of_it in (
        "proves a GPU cluster fit for training",
        "clusterproof explain",
        "--baseline FILE",
        "exit codes",
    ):
        assert words_of_it in " ".join(shown.stdout.split())  # man fills lines with spaces
