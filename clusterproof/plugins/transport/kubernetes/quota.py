"""A quota of pods that is met in the middle of a run: who has no place waits until a pod of the run's own has ended."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from clusterproof.plugins.kubernetes.api import Api, KubernetesError
from clusterproof.plugins.transport.kubernetes.pod import Run

AGAIN_S = 2.0  # between tries of one node: Kubernetes counts a moment after a pod has ended
COUNTED_S = 15.0  # after the run's last pod has ended, that one is no longer counted


class Places:
    """The pods of a run that there are at once. Safe to use from several threads."""

    def __init__(self, api: Api, run: Run) -> None:
        self._api = api
        self._run = run
        self._count = 0
        self._left_at = float("-inf")  # time.monotonic(): when the last of them was left
        self._left: list[str] = []  # pods that nobody needs any more
        self._is_short = False
        self._changed = threading.Condition()

    def taken(self) -> None:
        """Count a pod that was created."""
        with self._changed:
            self._count += 1

    def left(self, name: str) -> None:
        """Count a pod no longer, of which nothing more is wanted; where places are short, it is deleted at once."""
        with self._changed:
            self._count -= 1
            self._left_at = time.monotonic()
            self._left.append(name)
        if self._is_short:
            self._delete()
        with self._changed:
            self._changed.notify()

    def wait(self) -> bool:
        """Wait for a place, at most for a moment; False where no pod of the run's own has one that it could leave."""
        self._is_short = True
        self._delete()
        with self._changed:
            if not self._count and time.monotonic() > self._left_at + COUNTED_S:
                return False
            self._changed.wait(AGAIN_S)
            return True

    def _delete(self) -> None:
        """Delete the pods that are left: a quota of objects counts those that have ended too."""
        with self._changed:
            names, self._left = self._left, []
        for name in names:
            with suppress(KubernetesError):  # it goes with the run
                self._api.delete(self._run.pods, fieldSelector=f"metadata.name={name}", gracePeriodSeconds=0)
