"""Installs clusterproof on a node, upgrades, rolls back and removes it, while jobs start and end.

Each version has its own folder, and /opt/clusterproof is a link to one: Slurm finds a script there at any moment, and a
call that began in one version ends in it. `wheels` puts a copy of this file next to the wheels, as
`clusterproof-slurm`: it needs only Python, whose version the scripts will use.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HOME = Path("/opt/clusterproof")
VERSIONS = Path("/opt/clusterproof.versions")
PREVIOUS = VERSIONS / "previous"
COMPLETE = "complete"  # the file in a version's folder that is created last
OLDEST = (3, 10)
PIP = (22, 3)  # the oldest with `--python`
OTHERS_WRITE = 0o022
STARTS = "from clusterproof.integrations.slurm.main import main"
NEEDS = ("clusterproof-prolog", "clusterproof-epilog", "clusterproof-health-check", "python")
PATH = (  # as in the scripts
    "/opt/slurm/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
    ":/usr/local/slurm/bin:/cm/local/apps/slurm/current/bin:/cm/shared/apps/slurm/current/bin"
)


class Refused(Exception):  # noqa: N818 - an outcome, not an error
    """The request was refused and nothing changed; the message says why."""


def wheels(folder: Path, checkout: Path) -> str:
    """Build the wheels of a checkout and its dependencies into a folder; returns what was done."""
    with tempfile.TemporaryDirectory() as build_folder:
        _run(*_environment(Path(build_folder)), "wheel", "--quiet", "--wheel-dir", folder, checkout)
    shutil.copyfile(__file__, folder / "clusterproof-slurm")
    return f"{len(list(folder.glob('*.whl')))} wheels are in {folder}"


def install(folder: Path) -> str:
    """Install the version with wheels in this folder, and switch the link; returns what was done. Raises Refused."""
    if HOME.exists() and not HOME.is_symlink():
        raise Refused(f"{HOME} is a folder; expected a link of this command's, or nothing (install.md, by hand)")
    wheel = _wheel_in(folder)
    _refuse_others_wheels(folder)
    wanted = VERSIONS / f"{wheel.name.split('-')[1]}-{_digest(folder)}"
    if wanted == _led_to(HOME):
        return f"{wanted.name} is installed already"
    if not (wanted / COMPLETE).exists():
        _make(wanted, wheel)
    _switch(wanted)
    for old in sorted(VERSIONS.glob("*-*")):
        if old not in (_led_to(HOME), _led_to(PREVIOUS)) and not _users_of(old):
            shutil.rmtree(old)
    return f"{HOME} is {wanted.name}; a rollback leads to {_name_of(PREVIOUS)}"


def rollback() -> str:
    """Switch the link back to the previous version; returns what was done. Twice undoes it. Raises Refused."""
    previous = _led_to(PREVIOUS)
    if not previous or not (previous / COMPLETE).exists():
        raise Refused(f"no version was installed before {_name_of(HOME)}; expected one in {VERSIONS}")
    _switch(previous)
    return f"{HOME} is {previous.name}; another rollback leads to {_name_of(PREVIOUS)}"


def remove() -> str:
    """Remove all versions, if Slurm uses none; returns what was done. Raises Refused."""
    os.environ["PATH"] = ":".join(filter(None, (PATH, os.environ.get("PATH"))))
    if shutil.which("scontrol"):
        _refuse_while_named()
    elif slurmd := _slurmd():
        why = "to say that slurm.conf names none of the scripts"
        raise Refused(f"slurmd runs (process {slurmd}) and PATH has no scontrol; expected it there, {why}")
    users = _users_of(VERSIONS)
    if users:
        raise Refused(f"process {users[0]} runs from {VERSIONS}; expected none: a script ends within two minutes")
    HOME.unlink(missing_ok=True)
    shutil.rmtree(VERSIONS)
    return f"{HOME} is removed; /etc/clusterproof and /var/lib/clusterproof are as they were"


def _refuse_while_named() -> None:
    """Raises Refused if slurm.conf names a script of ours, or Slurm does not answer."""
    from clusterproof.integrations.slurm import job, slurm_conf  # a copy next to the wheels can only install

    report = slurm_conf.slurm_report_of(job.node_of(os.environ))
    if not report.config:
        raise Refused(f"{report.problem}; expected slurmctld's answer: a script that is gone drains the node")
    named = [keyword for keyword in slurm_conf.SCRIPTS if slurm_conf.names_ours(report.config, keyword)]
    if named:
        why = "else the next job drains the node"
        raise Refused(f"slurm.conf has {', '.join(named)} of ours; expected none after scontrol reconfigure: {why}")


def _wheel_in(folder: Path) -> Path:
    """The clusterproof wheel in a folder. Raises Refused if there is not exactly one, or others may write it."""
    wheels = sorted(folder.glob("clusterproof-*.whl"))
    if len(wheels) != 1:
        raise Refused(f"{folder} has {len(wheels)} wheels of clusterproof; expected one")
    for path in (folder, *folder.glob("*.whl")):
        status = path.stat()
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & OTHERS_WRITE:
            raise Refused(f"{path} may be written by others than root; expected wheels that only root writes")
    return wheels[0]


def _refuse_others_wheels(folder: Path) -> None:
    """Raises Refused if a package only has wheels for another Python or another kind of machine."""
    by_package: dict[str, list[str]] = {}
    for wheel in sorted(folder.glob("*-*-*-*-*.whl")):
        by_package.setdefault(wheel.name.split("-")[0], []).append(wheel.name)
    for names in by_package.values():
        if not any(map(_fits, names)):
            this_python = f"Python 3.{sys.version_info[1]} on {os.uname().machine}"
            raise Refused(
                f"{folder} has {', '.join(names)}, and this is {this_python}; expected this command run by the Python "
                "that the wheels are of, or wheels that this Python made (install.md)"
            )


def _fits(wheel: str) -> bool:
    """Whether a wheel fits this Python and machine, by the last three parts of its name."""
    pythons, abi, systems = wheel[: -len(".whl")].split("-")[-3:]
    minor = sys.version_info[1]
    is_of_python = "py3" in pythons.split(".") or f"cp3{minor}" in pythons.split(".")
    if abi == "abi3":
        is_of_python = any(tag[3:].isdecimal() and int(tag[3:]) <= minor for tag in pythons.split("."))
    return is_of_python and (systems == "any" or systems.endswith(os.uname().machine))


def _digest(folder: Path) -> str:
    """A digest of the wheels and of the Python that runs this."""
    digest = hashlib.sha256(f"{sys.version} {sys.base_prefix}".encode())
    for wheel in sorted(folder.glob("*.whl")):
        digest.update(wheel.name.encode() + wheel.read_bytes())
    return digest.hexdigest()[:8]


def _make(folder: Path, wheel: Path) -> None:
    """Install into its own folder, and start what Slurm will start. Raises Refused."""
    shutil.rmtree(folder, ignore_errors=True)  # left by an interrupted installation
    try:
        pip = _environment(folder)
        _run(*pip, "install", "--quiet", "--no-index", "--find-links", wheel.parent, wheel)
        _run(folder / "bin" / "python", "-I", "-c", STARTS)
        missing = [name for name in NEEDS if not os.access(folder / "bin" / name, os.X_OK)]
        if missing:
            raise Refused(f"{wheel} has no {', '.join(missing)}; expected them")
        (folder / COMPLETE).touch()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _environment(folder: Path) -> tuple[str | Path, ...]:
    """Create a virtual environment; returns the command that installs into it. Raises Refused."""
    python = folder / "bin" / "python"
    has_pip = _has_pip()
    try:
        venv.create(folder, with_pip=not has_pip, symlinks=True)  # with copies, some would not find their libraries
    except subprocess.CalledProcessError as problem:
        why = f"{sys.executable} cannot make an environment: {problem.output.decode(errors='replace').strip()[-500:]}"
        raise Refused(f"{why}; install its venv package (apt-get install python3-venv)") from None
    return (sys.executable, "-m", "pip", "--python", python) if has_pip else (python, "-m", "pip")


def _has_pip() -> bool:
    """Whether this Python has a pip that can install into another environment."""
    try:
        installed = version("pip").split(".")[:2]
        return tuple(map(int, installed)) >= PIP
    except (PackageNotFoundError, ValueError):
        return False


def _switch(folder: Path) -> None:
    """Switch the link to a version, and the second link to the previous one."""
    before = _led_to(HOME)
    _lead(HOME, folder)
    if before:
        _lead(PREVIOUS, before)


def _lead(link: Path, folder: Path) -> None:
    """Create or replace a link atomically."""
    new = link.with_name(f".{link.name}.new")  # no other process creates it
    new.unlink(missing_ok=True)
    new.symlink_to(folder)
    new.replace(link)


def _led_to(link: Path) -> Path | None:
    return link.readlink() if link.is_symlink() else None


def _name_of(link: Path) -> str:
    folder = _led_to(link)
    return folder.name if folder else "none"


def _users_of(folder: Path) -> list[str]:
    """The processes with a program or script in a folder, by number."""
    users = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            argv = (process / "cmdline").read_bytes().split(b"\0")
            if process.name != str(os.getpid()) and any(word.startswith(f"{folder}/".encode()) for word in argv[:2]):
                users.append(process.name)
    return users


def _slurmd() -> str:
    """The number of root's process of that name; empty if there is none."""
    for name in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):  # it may have ended
            if name.read_text() == "slurmd\n" and name.stat().st_uid in (0, os.geteuid()):
                return name.parent.name
    return ""


def _run(*command: str | Path) -> None:
    """Run a program in /, where nobody else can place modules for `python -m`. Raises Refused if it fails."""
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, cwd="/")
    if ran.returncode:
        raise Refused(f"{command[0]} ended with {ran.returncode}: {(ran.stderr or ran.stdout).strip()[-2000:]}")


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    VERSIONS.mkdir(parents=True, exist_ok=True)
    with VERSIONS.joinpath(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """0 if done, 1 if nothing was changed, 4 for a usage error."""
    parser = argparse.ArgumentParser("clusterproof-slurm", description="for Slurm's nodes (install.md)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    own_folder = Path(__file__).resolve().parent
    with_wheels = commands.add_parser("wheels", help="build the wheels of a checkout into a folder")
    with_wheels.add_argument("folder", type=Path)
    with_folder = commands.add_parser("install", help="install or upgrade from the folder of wheels that this lies in")
    with_folder.add_argument("folder", type=Path, nargs="?", default=own_folder)
    commands.add_parser("rollback", help="back to the version before")
    commands.add_parser("remove", help="remove all versions, once slurm.conf names none of the scripts")
    try:
        arguments = parser.parse_args()
    except SystemExit as end:
        return 4 if end.code else 0
    os.umask(OTHERS_WRITE)
    try:
        print(_done(arguments.command, getattr(arguments, "folder", own_folder), (own_folder / "../../..").resolve()))  # noqa: T201
    except (Refused, OSError) as problem:
        print(f"clusterproof-slurm: {problem}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _done(command: str, folder: Path, checkout: Path) -> str:
    """Run the command; returns what was done. Raises Refused, OSError."""
    if sys.version_info < OLDEST:
        raise Refused(f"this Python is {sys.version.split()[0]}; expected 3.10 or newer: run this with it")
    if command == "wheels":
        return wheels(folder.resolve(), checkout)
    with _one_at_a_time():
        return install(folder.resolve()) if command == "install" else rollback() if command == "rollback" else remove()


if __name__ == "__main__":
    sys.exit(main())
