"""`clusterproof doctor`: which nodes can be reached from here, and what the rest would need. Contacts no node."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from clusterproof.plugins.core import __version__
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.one_line import OneLineParser
from clusterproof.plugins.core.opened import in_home, is_file

ANSWER_S = 10.0  # for a Slurm command, or the user's ssh-agent
MAX_ANSWER = 300  # characters of its output that are shown
_SYSTEM = Path("/etc/ssh")  # OpenSSH's folder; many sites keep the host keys of a cluster there
_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")  # OpenSSH's default keys, in the order in which it tries them


@dataclass(frozen=True, slots=True)
class Reach:
    """A way to reach nodes: its form of X, whether it works here, and what was seen or what to do."""

    serves: str
    is_there: bool
    detail: str

    @property
    def line(self) -> str:
        """`ok   ssh:     2 keys in the agent`, wrapped to its own column in a narrow terminal."""
        begin = f"{'ok' if self.is_there else '--':<4} {self.serves:<12} "
        return textwrap.fill(
            self.detail,
            shutil.get_terminal_size().columns,
            initial_indent=begin,
            subsequent_indent=" " * len(begin),
            break_long_words=False,
            break_on_hyphens=False,
        )


def parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof doctor`."""
    return OneLineParser(
        prog="clusterproof doctor",
        description="What can be reached from here, and what is missing for the rest. Nothing is asked over a network.",
        allow_abbrev=False,
    )


def doctor(arguments: list[str]) -> tuple[int, str]:
    """The exit code and the text of `clusterproof doctor`. Raises SystemExit after its help, or a usage error."""
    parser().parse_args(arguments)
    head = f"clusterproof {__version__}, Python {platform.python_version()}, {platform.platform(terse=True)}"
    return 0, "\n".join([head, "", *(means.line for means in reaches(os.environ, Path(in_home("~")))), ""])


def reaches(environment: Mapping[str, str], home: Path) -> Iterator[Reach]:
    """What there is, kind by kind of X."""
    yield Reach("local", platform.system() == "Linux", f"this machine runs {platform.system()}; checks expect Linux")
    yield from check_ssh(environment, home)
    yield check_slurm(_scontrol_ping)
    yield check_kubernetes()
    yield check_aws(_identity)
    plugin = shutil.which("session-manager-plugin", path=environment.get("PATH"))
    missing = "session-manager-plugin is not on PATH; install AWS's package for HyperPod nodes (docs/aws.md)"
    yield Reach("HyperPod", plugin is not None, plugin or missing)


def check_ssh(environment: Mapping[str, str], home: Path, system: Path = _SYSTEM) -> Iterator[Reach]:
    """Keys to offer, and host keys to believe: the user's and the system's, as OpenSSH reads them."""
    loaded, problem = _keys_of_agent() if environment.get("SSH_AUTH_SOCK") else (0, "")
    named = [f"~/.ssh/{name}" for name in _KEYS] + _identity_files(_text(home / ".ssh" / "config"))
    files = [name for name in dict.fromkeys(named) if is_file(name.replace("~", str(home), 1))]
    keys = [*([f"{loaded} in the agent"] if loaded else []), *files]
    lacking = "no key in an agent, in ~/.ssh or its config; ssh-add one, or name it: identity_file in an inventory"
    seen = f"keys: {', '.join(keys)}" if keys else lacking
    yield Reach("ssh:", bool(keys), f"{problem}; {seen}" if problem else seen)
    files_of_keys = {
        "~/.ssh/known_hosts": home / ".ssh" / "known_hosts",
        "~/.ssh/known_hosts2": home / ".ssh" / "known_hosts2",
        "/etc/ssh/ssh_known_hosts": system / "ssh_known_hosts",
        "/etc/ssh/ssh_known_hosts2": system / "ssh_known_hosts2",
    }
    counts = {name: _host_keys(file) for name, file in files_of_keys.items()}
    there = [f"{number_of(count, 'host key')} in {name}" for name, count in counts.items() if count]
    unknown = "no host key in ~/.ssh/known_hosts or /etc/ssh; log in once by hand, or --accept-new-host-keys"
    yield Reach("ssh:", bool(there), ", ".join(there) or unknown)


def _host_keys(file: Path) -> int:
    return sum(bool(line.strip()) and not line.startswith("#") for line in _text(file).splitlines())


def _identity_files(config: str) -> list[str]:
    """The keys that an ssh_config names, for any host."""
    options = [line.partition(" #")[0].replace("=", " ", 1).split(None, 1) for line in config.splitlines()]
    return [option[1].strip(' \t"') for option in options if len(option) > 1 and option[0].lower() == "identityfile"]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def check_slurm(ping: Callable[[], str | None]) -> Reach:
    """Whether Slurm's commands are here and its controller answers; `ping` is None where there are none."""
    answer = ping()
    if answer is None:
        return Reach("slurm:", False, "no scontrol on PATH; run this on a submit host, or --via ssh:HOST")
    answers = answer or f"slurmctld did not answer scontrol within {ANSWER_S:.0f} s"
    is_up = " is UP" in answer  # of a backup too
    answers = answers if len(answers) <= MAX_ANSWER else f"{answers[:MAX_ANSWER]}…"
    return Reach("slurm:", is_up, answers if is_up else f"{answers}; run this on a submit host, or --via ssh:HOST")


def check_kubernetes() -> Reach:
    """Whether there is the client, and a kubeconfig with contexts; none of them is tried."""
    from clusterproof.plugins.kubernetes.access import contexts

    try:
        known, current = contexts()
    except ClusterproofError as problem:
        return Reach("k8s:", False, str(problem))
    if not known:
        return Reach("k8s:", False, "no kubeconfig with a context; expected one (KUBECONFIG, ~/.kube/config)")
    more = f" and {len(known) - 1} more" if len(known) > 1 else ""
    return Reach("k8s:", True, f"context {current or known[0]}{more} (docs/kubernetes.md has the rights that it needs)")


def check_aws(identity: Callable[[], str]) -> Reach:
    """Whether there are credentials and a region, which no call proves here."""
    try:
        return Reach("ec2:, asg:", True, identity())
    except ClusterproofError as problem:
        return Reach("ec2:, asg:", False, str(problem))


def _identity() -> str:
    from clusterproof.plugins.aws import Account

    account = Account()
    account.require_credentials()
    return f"AWS credentials, region {account.region} (docs/aws.md has the policy that they need)"


def _keys_of_agent() -> tuple[int, str]:
    """How many keys the agent has, and why it does not say so."""
    from clusterproof.plugins.transport.ssh.agent import UserAgent

    agent = UserAgent(ANSWER_S)
    loaded = len(agent.get_keys())
    agent.close()
    return loaded, agent.problem


def _scontrol_ping() -> str | None:
    if not shutil.which("scontrol"):
        return None
    try:
        done = subprocess.run(["scontrol", "ping"], capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    output = done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]
    return " ".join(output.split())
