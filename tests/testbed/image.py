"""What a fake node is made of, as data."""

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


OPENS = Device(1, 3)  # for one whose driver answers, this machine's null


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, where one is needed that holds nothing or has a mode of its own."""

    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class File:
    """A file whose mode matters, or when it was written (seconds since 1970)."""

    content: str | bytes
    mode: int = 0o644
    written: int = 0


ABSENT = Device(0, 0, 0)  # overlayfs's whiteout: hides what lies beneath at that path

Entry = File | Link | Device | Folder
Content = str | bytes | Entry | Callable[[], str | bytes]  # a callable is asked when the node is entered


def text_of(content: Content) -> str:
    """The content of a file that is text as it stands, with or without a mode of its own."""
    text = content.content if isinstance(content, File) else content
    assert isinstance(text, str), text
    return text


@dataclass(frozen=True, slots=True)
class Service:
    """A systemd unit in the words of `systemctl show`; `since_s` after boot it was last started."""

    load: str = "loaded"
    active: str = "active"
    sub: str = "running"
    enabled: str = "enabled"
    restarts: int = 0
    since_s: int = 60


NOT_FOUND = Service("not-found", "inactive", "dead", "", since_s=0)


@dataclass(frozen=True, slots=True)
class NodeImage:
    """A node as it will stand: the programs that every node has, overlaid with these.

    - `files` by absolute path; `tools`: shell scripts by name (then in /usr/bin) or absolute path
    - `sys`: the whole of /sys, by path under it; `proc`: files put over those of a real /proc, likewise
    - `nvml`: what the fake NVML library answers with (None: there is no library)
    - `tmpfs`: sizes by mount point; `root_percent`: how full the root volume is (0: as it comes)
    - `services`: what systemctl knows (None: there is no systemctl)
    - `daemons` really run, with that limit of locked memory; `memlock`: that of everybody else
    - `limits`: everybody's other soft limits, by the name that limits.conf has for them
    - `frozen`: file systems on which a write never comes back until the node is left
    - `hung`: mounts that never answer at all, with their type
    - `whole_machine`: all that is installed on this machine is beneath, for a node that runs some of it
    - `bound`: folders of this machine by where the node sees them, to read only
    - `mounted`: lines of mountinfo, of file systems that this machine cannot mount; there is a folder in their place
    - `login_shell`: a script that is the shell of those who log in with ssh ("": /bin/sh)
    - `banner`: what sshd says before they do
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
