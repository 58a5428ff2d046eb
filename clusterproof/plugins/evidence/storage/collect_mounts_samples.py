"""Mounted file systems while a node is watched: sends changes in the form of the collector `mounts`."""

from __future__ import annotations

import time

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.storage.collect_mounts import OF_OTHERS, PSEUDO, look, mounted
from clusterproof.plugins.evidence.storage.collect_touch import UNKNOWN, are_left

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

LOOK_S = 9.5  # between two accesses of all mounts, while none is mounted or unmounted
MAX_LOOKS = 8  # more accesses while an earlier process still hangs
HANGS = ("hung", "slow")


class Sampler:
    """The mounts, their options, and whether each answers; a hang is reported once it is seen twice."""

    def __init__(self, node: Node) -> None:
        self._path = "/proc/1/mountinfo" if node.root else "/proc/self/mountinfo"
        self._text = ""
        self._table: list[dict[str, str]] = []
        self._automatic: set[str] = set()  # folders of autofs
        self._looked, self._looks = -LOOK_S, 0
        self._facts: Any = {"mounts": []}  # from the last sample
        self._sent: object = None

    def fixed(self) -> object:
        """Nothing: everything is sampled."""
        return None

    def sample(self, node: Node) -> dict[str, object]:
        """The report of the collector `mounts`, if it has changed."""
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
        """Whether the mounts have changed, apart from those of containers and of the kernel."""
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
        """Answers to keep, so that autofs can unmount what nobody uses, and no second process hangs."""
        hanging = () if self._may_touch_all(is_changed) else HANGS
        return {
            mount["path"]: {key: mount[key] for key in ("alive", *UNKNOWN)}
            for mount in self._facts["mounts"]
            if mount["alive"] in hanging or (mount["alive"] == "yes" and self._is_automatic(mount["path"]))
        }

    def _is_automatic(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{above}/") for above in self._automatic)

    def _may_touch_all(self, is_changed: bool) -> bool:
        """Whether mounts that hang may be accessed: seldom while an earlier process, which no signal ends, hangs."""
        if not are_left():
            self._looks = 0
            return True
        self._looks += is_changed
        return is_changed and self._looks <= MAX_LOOKS


def _signature(facts: Any) -> object:
    """The values whose change is reported; of the free space only whole percents."""
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
