"""Where the scripts look for Slurm's commands, and for its slurm.conf."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from clusterproof.integrations.slurm import control, versions
from clusterproof.plugins.evidence.slurm import slurm
from clusterproof.plugins.transport.srun import places
from tests.integrations.slurm.scripts import SCRIPTS


@pytest.mark.parametrize("name", ["prolog", "epilog", "health-check", "case"])
def test_a_script_finds_slurm_wherever_a_run_does_and_looks_at_shared_disks_last(name: str) -> None:
    script = (SCRIPTS / f"clusterproof-{name}").read_text(encoding="utf-8")
    own = "\n".join(line for line in script.splitlines() if line.startswith("PATH="))
    path = subprocess.run(["/bin/sh", "-c", f"{own}\necho $PATH"], capture_output=True, text=True, check=True).stdout
    folders = path.strip().split(":")
    assert set(places.FOLDERS.split(":")) <= set(folders)
    assert tuple(folders[-3:]) == slurm.ELSEWHERE
    assert path.strip() == versions.PATH


NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize(
    ("program", "of_folder", "of_process", "is_believed"),
    [
        ("slurmd", 0, 0, True),
        ("slurmd-wlm", 0, 0, True),  # Debian's
        ("slurmd (deleted)", 0, 0, True),  # replaced by an upgrade
        ("slurmd", 0, NOBODY, False),  # started by a user
        ("sudo", 0, 0, False),  # by a link of this name, and root's only by its file
        ("slurmd", NOBODY, 0, False),  # the same, by a hard link
    ],
)
def test_only_what_root_runs_as_slurmd_from_a_file_of_roots_says_where_slurm_conf_lies(
    program: str, of_folder: int, of_process: int, is_believed: bool, tmp_path: Path
) -> None:
    folder, process = tmp_path / "sbin", tmp_path / "7"
    folder.mkdir()
    process.mkdir()
    (folder / program.split()[0]).touch()
    (process / "exe").symlink_to(folder / program)
    (process / "cmdline").write_text("slurmd\0-D\0-f\0/etc/other/slurm.conf\0")
    (process / "environ").write_text("")
    os.chown(folder, of_folder, -1)
    os.chown(process, of_process, -1)
    assert list(control.named_to_slurmd(tmp_path)) == ["/etc/other/slurm.conf"] * is_believed


@pytest.mark.parametrize(
    ("arguments", "environment", "conf"),
    [
        ("slurmd -D -f /a/slurm.conf", "PATH=/bin SLURM_CONF=/b/slurm.conf", "/a/slurm.conf"),
        ("slurmd -Df /a/slurm.conf", "", "/a/slurm.conf"),
        ("slurmd -f/a/slurm.conf -D", "", "/a/slurm.conf"),
        ("slurmd -D -N nodef", "SLURM_CONF=/b/slurm.conf", "/b/slurm.conf"),
        ("slurmd", "SLURM_CONF=/b/slurm.conf", "/b/slurm.conf"),
        ("slurmd -D --conf-server=head", "", ""),
        ("slurmd -f", "", ""),
    ],
)
def test_the_slurm_conf_of_slurmd_is_that_of_its_option_or_environment(
    arguments: str, environment: str, conf: str
) -> None:
    assert control.conf_in(arguments.split(), environment.split()) == conf


def test_a_prolog_to_which_slurmd_has_named_its_slurm_conf_reads_no_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.touch()
    asked: list[str] = []
    monkeypatch.setenv(control.CONF, str(conf))
    monkeypatch.setattr(control, "named_to_slurmd", lambda: map(asked.append, ["all of /proc"]))
    assert (control.slurm_conf(), asked) == (str(conf), [])
