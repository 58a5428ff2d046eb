"""The data that describe a fake node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True, slots=True)
class Device:
    """A character device."""

    major: int
    minor: int
    mode: int = 0o666


OPENS = Device(1, 3)  # a device whose driver answers: this machine's null


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is empty or has a particular mode."""

    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class File:
    """A file with a particular mode or modification time (seconds since 1970)."""

    content: str | bytes
    mode: int = 0o644
    written: int = 0


ABSENT = Device(0, 0, 0)  # overlayfs's whiteout: hides what is beneath at that path

Entry = File | Link | Device | Folder
Content = str | bytes | Entry | Callable[[], str | bytes | Entry]  # a callable is called when the node is entered


def text_of(content: Content) -> str:
    """The content of a file that is plain text, with or without its own mode."""
    text = content.content if isinstance(content, File) else content
    assert isinstance(text, str), text
    return text


@dataclass(frozen=True, slots=True)
class Service:
    """A systemd unit in the words of `systemctl show`, last started `since_s` after boot."""

    load: str = "loaded"
    active: str = "active"
    sub: str = "running"
    enabled: str = "enabled"
    restarts: int = 0
    since_s: int = 60


NOT_FOUND = Service("not-found", "inactive", "dead", "", since_s=0)


@dataclass(frozen=True, slots=True)
class NodeImage:
    """A node's definition: the base system, overlaid with these.

    - `files` by absolute path; `tools`: shell scripts by name (then in /usr/bin) or absolute path
    - `sys`: the whole of /sys, by path under it; `proc`: files that cover those of a real /proc, likewise
    - `nvml`: the fake NVML library's answers (None: there is no library)
    - `tmpfs`: sizes by mount point; `root_percent`: how full the root volume is (0: unchanged)
    - `services`: the units that systemctl knows (None: there is no systemctl)
    - `daemons` really run, with that limit of locked memory; `memlock`: everybody else's limit
    - `limits`: everybody's other soft limits, by their names in limits.conf
    - `frozen`: file systems on which a write does not return until the node is powered off
    - `hung`: mounts that never answer, with their type
    - `whole_machine`: all that is installed on this machine is beneath, for nodes that run some of it
    - `bound`: folders of this machine by their path on the node, read-only
    - `mounted`: lines of mountinfo for file systems that this machine cannot mount; folders take their place
    - `login_shell`: a script that serves as the login shell over ssh ("": /bin/sh)
    - `banner`: what sshd prints before login
    """

    files: dict[str, Content] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    sys: dict[str, Content] = field(default_factory=dict)
    proc: dict[str, Content] = field(default_factory=dict)
    nvml: str | None = None
    tmpfs: dict[str, str] = field(default_factory=dict)
    root_percent: int = 0
    services: dict[str, Service] | None = None
    daemons: dict[str, str] = field(default_factory=dict)
    memlock: str = "unlimited"
    limits: dict[str, str] = field(default_factory=dict)
    frozen: tuple[str, ...] = ()
    hung: dict[str, str] = field(default_factory=dict)
    whole_machine: bool = False
    bound: dict[str, str] = field(default_factory=dict)
    mounted: tuple[str, ...] = ()
    login_shell: str = ""
    banner: str = ""
