"""The `nvml` collector's report on a node, and how it differs from a healthy one."""

from __future__ import annotations

from functools import cache
from typing import Any

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.evidence import Collected
from tests.builders import probed
from tests.builders.probed import PATIENT
from tests.testbed.image import NodeImage
from tests.testbed.node import healthy_p5, with_nvml


def collected(image: NodeImage, options: ProbeOptions = PATIENT) -> Collected:
    return probed.collect(image, "nvml", options)


def value(image: NodeImage) -> Any:
    return probed.value(image, "nvml")


@cache
def healthy() -> Any:
    return value(healthy_p5())


def changed(**values: object) -> dict[str, Any]:
    """How GPU 3's report differs from a healthy one with these NVML answers; the other GPUs' must not differ."""
    before, after = healthy()["gpus"], value(with_nvml(healthy_p5(), 3, **values))["gpus"]
    assert before[:3] + before[4:] == after[:3] + after[4:]
    return {key: reading for key, reading in after[3].items() if reading != before[3].get(key)}
