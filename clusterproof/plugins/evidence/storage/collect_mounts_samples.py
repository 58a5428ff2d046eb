"""Mounted file systems while a node is watched: sends changes in the form of the collector `mounts`."""

from __future__ import annotations

import time

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.storage.collect_mounts import OF_OTHERS, PSEUDO, look, mounted
from clusterproof.plugins.evidence.storage.collect_touch import UNKNOWN, are_left

TYPE_CHECKING = False  # typing's own costs an import on every node
if TYPE_CHECKING:
    from typing import Any

LOOK_S = 9.5  # at what nobody mounts or unmounts: does it answer, has it room
MAX_LOOKS = 8  # at what hangs, while a process of ours does in it
HANGS = ("hung", "slow")


class Sampler:
    """What is mounted, how, and whether it answers; a hang counts if it is seen twice."""

    def __init__(self, node: Node) -> None:
        self._path = "/proc/1/mountinfo" if node.root else "/proc/self/mountinfo"
        self._text = ""
        self._table: list[dict[str, str]] = []
        self._automatic: set[str] = set()  # folders of autofs
        self._looked, self._looks = -LOOK_S, 0
        self._facts: Any = {"mounts": []}  # at the last look
        self._sent: object = None

    def fixed(self) -> object:
        """Nothing."""
        return None

    def sample(self, node: Node) -> dict[str, object]:
        """The facts, where they have changed."""
        is_changed, now = self._is_changed(node), time.monotonic()
        if not is_changed and now - self._looked < LOOK_S:
            return {}
        self._looked = now
        before = {mount["path"] for mount in self._facts["mounts"] if mount["alive"] in HANGS}
        self._facts = look(node, self._known(is_changed))
        hanging = {mount["path"] for mount in self._facts["mounts"] if mount["alive"] in HANGS}
        signature = _signature(self._facts)
        if hanging - before or signature == self._sent:
            return {}
        self._sent = signature
        return {"facts": {"mounts": self._facts}}

    def _is_changed(self, node: Node) -> bool:
        """Whether something was mounted, unmounted or mounted otherwise that is not a container's, nor the kernel's."""
        text = node.read(self._path)
        if text == self._text:
            return False
        self._text, before = text, self._table
        every = mounted(node)
        self._automatic = {mount["path"].rstrip("/") for mount in every if mount["type"] == "autofs"}
        self._table = [
            mount for mount in every if not PSEUDO.fullmatch(mount["type"]) and not OF_OTHERS.match(mount["path"])
        ]
        return self._table != before

    def _known(self, is_changed: bool) -> dict[str, dict[str, object]]:
        """What is not touched again: what would never be unmounted then, and what would only have one more hang."""
        hanging = () if self._may_touch_all(is_changed) else HANGS
        return {
            mount["path"]: {key: mount[key] for key in ("alive", *UNKNOWN)}
            for mount in self._facts["mounts"]
            if mount["alive"] in hanging or (mount["alive"] == "yes" and self._is_automatic(mount["path"]))
        }

    def _is_automatic(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{above}/") for above in self._automatic)

    def _may_touch_all(self, is_changed: bool) -> bool:
        """Not while a process of a look before hangs in one of them: no signal ends it."""
        if not are_left():
            self._looks = 0
            return True
        self._looks += is_changed
        return is_changed and self._looks <= MAX_LOOKS


def _signature(facts: Any) -> object:
    """What is told when it changes: all but how much is free, of which whole percents are enough."""
    mounts = [
        {
            **{key: value for key, value in mount.items() if key not in ("free_kib", "inodes_free", "read_s")},
            "free": [_percent(mount["free_kib"], mount["total_kib"]), _percent(mount["inodes_free"], mount["inodes"])],
        }
        for mount in facts["mounts"]
    ]
    return [mounts, facts["fstab"], facts["left_out"]]


def _percent(part: Any, total: Any) -> int | None:
    return 100 * part // total if isinstance(part, int) and total else None
