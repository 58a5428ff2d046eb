"""Programs for pods other than a probe, and runs with them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.transport import MAX_ANSWER_BYTES, Answer, Limits, Program
from clusterproof.plugins.transport.kubernetes.connection import Kubernetes
from tests.testbed.kubernetes.bed import NAMESPACE, Bed
from tests.testbed.kubernetes.control_plane import ControlPlane
from tests.testbed.kubernetes.processes import wait_until

NODE = "gpu001"
NONCE = "cp0123456789"
END = f"{NONCE}:end:0:0:00000000."
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


def shell(script: str) -> Program:
    """A program that runs a script without single quotes, and then prints the end marker."""
    return Program(f"/bin/sh -c '{script} && echo {END}'", nonce=NONCE)


def run(
    program: Program,
    *names: str,
    answer_s: float = 60,
    connect_s: float = 60,
    answer_bytes: int = MAX_ANSWER_BYTES,
    **settings: str,
) -> Mapping[str, Answer]:
    """Each node's answer, without the end marker."""
    answers: dict[str, Answer] = {}
    limits = Limits(connect_s=connect_s, answer_s=answer_s, answer_bytes=answer_bytes, settings=settings)
    targets = [Target(name) for name in names or (NODE,)]
    Kubernetes().run(targets, program, limits, lambda target, answer: answers.update({target.name: answer}))
    end = f"{END}\n".encode()
    return {name: replace(answer, output=answer.output.replace(end, b"")) for name, answer in answers.items()}


def answer_of(script: str, **limits: Any) -> Answer:
    """The node's answer to a script."""
    return run(shell(script), **limits)[NODE]


def expire_jobs(plane: ControlPlane) -> None:
    """End the time to live of all runs' Jobs: Kubernetes deletes them with what they own."""
    for name in [job["metadata"]["name"] for job in plane.items(JOBS)]:
        plane.patch(f"{JOBS}/{name}", {"spec": {"ttlSecondsAfterFinished": 1}})


@dataclass
class Meanwhile:
    """A run in a separate thread."""

    bed: Bed
    script: str
    answers: list[Answer] = field(default_factory=list)
    thread: threading.Thread = field(init=False)

    def __enter__(self) -> Meanwhile:
        self.thread = threading.Thread(target=lambda: self.answers.append(answer_of(self.script)))
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.join()

    def pod(self) -> str:
        """The name of its pod, once it runs."""
        wait_until(
            lambda: any(pod["status"].get("phase") == "Running" for pod in self.bed.plane.items(PODS)), "running"
        )
        return str(next(pod["metadata"]["name"] for pod in self.bed.plane.items(PODS)))
