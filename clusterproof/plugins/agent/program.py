"""What runs on a node: the available collectors, their options, the program and its answer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache

from clusterproof.plugins.agent.reading import NO_CURSOR
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.record import record

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from clusterproof.plugins.agent.run import Request

EVIDENCE = os.path.realpath(f"{__file__}/../../evidence")
PACKAGE = "clusterproof.plugins.evidence"

MAX_ANSWER_BYTES = 8 * 1024 * 1024  # of one node, as sent; a healthy 8-GPU node sends about 20 kB
# multiplies `collector_s`: without persistence mode NVML's first call starts every GPU; libraries may be on a server
DEADLINE_FACTORS = {"nvml": 3.0, "nvml_inforom": 3.0, "container": 3.0}
END_S = 1.0  # to end what does not answer
SEND_S = 10.0  # to send the answer


@cache
def files() -> Mapping[str, str]:
    """The collectors' files, by collector name."""
    by_name = {}
    for kind in os.listdir(EVIDENCE):
        if "." not in kind and kind != "__pycache__":
            for file in os.listdir(f"{EVIDENCE}/{kind}"):
                if file == "collect.py":
                    by_name[kind] = f"{EVIDENCE}/{kind}/{file}"
                elif file.startswith("collect_") and file.endswith(".py"):
                    by_name[file[len("collect_") : -len(".py")]] = f"{EVIDENCE}/{kind}/{file}"
    return by_name


def module_of(name: str) -> str:
    """The module of a collector. Raises ValueError if there is none of that name."""
    file = files().get(name)
    if file is None:
        raise ValueError(f"{name} is not a collector of the probe")
    kind, module = file[: -len(".py")].split("/")[-2:]
    return f"{PACKAGE}.{kind}.{module}"


@cache
def collector_names() -> tuple[str, ...]:
    """The names of all collectors: files that define `read(node)`."""
    return tuple(sorted(name for name, file in files().items() if _is_collector(file)))


def _is_collector(file: str) -> bool:
    with open(file, encoding="utf-8") as opened:
        return "\ndef read(node: Node)" in opened.read()


@record
class Answer:
    """A node's answer: its raw bytes (cut at MAX_ANSWER_BYTES), or why there is none.

    It took `seconds`, and may have been collected `age_s` before it was requested. It is `too_long` if its connection
    shows only the beginning.
    """

    output: bytes = b""
    unreached: Unreached | None = None
    detail: str = ""
    seconds: float = 0.0
    age_s: float = 0.0
    too_long: bool = False


@record
class Program:
    """What to run on a node: a shell command line that reads `stdin` to the end.

    `nonce` marks the begin and end of its answer; empty if the answer has no markers.
    """

    command: str
    stdin: bytes = b""
    nonce: str = ""


@record
class ProbeOptions:
    """How the probe runs on each node."""

    host_root: str = "/"  # files are read below this folder
    collector_s: float = 5.0  # deadline of one collector; DEADLINE_FACTORS multiplies it
    mount_s: float = 2.0  # for one mounted file system, within its collector
    in_container: str = ""  # the command that enters a job's container, in which everything is read
    sudo: bool = False  # run as root through `sudo -n` where that is permitted
    checkpoints: tuple[str, ...] = ()  # folders that jobs save to: the probe reports how their files are striped
    mounts: tuple[str, ...] = ()  # mount points that the policy expects: they are checked before others
    max_characters: int = 0  # characters of an answer that its connection carries; 0: unlimited
    log_cursor: tuple[str, int, float] = NO_CURSOR  # boot id, sequence, seconds: the kernel log is read from there

    def deadline_s(self, collector: str) -> float:
        """Seconds for one collector."""
        return self.collector_s * DEADLINE_FACTORS.get(collector, 1.0)

    def whole_s(self, collectors: Iterable[str]) -> float:
        """Seconds on the node for everything, sending included."""
        return max((self.deadline_s(collector) for collector in collectors), default=0.0) + END_S + SEND_S

    def request(self, modules: Mapping[str, str]) -> Request:
        """The runner's request: to run these collectors, each by its module, the slowest first."""
        slowest_first = sorted(modules, key=lambda collector: (-self.deadline_s(collector), collector))
        return {
            "collectors": {collector: (modules[collector], self.deadline_s(collector)) for collector in slowest_first},
            "root": self.host_root,
            "mount_s": self.mount_s,
            "whole_s": self.whole_s(modules),
            "checkpoints": self.checkpoints,
            "mounts": self.mounts,
            "log_cursor": self.log_cursor,
            "max_characters": self.max_characters,
        }
