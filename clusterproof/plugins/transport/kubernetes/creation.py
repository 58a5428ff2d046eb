"""Creates the objects of a run, of which each is there once, whatever answers are lost.

Their names are random: an object that already exists was created by a request of this run that got no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from clusterproof.plugins.kubernetes.api import EXISTS, Api, KubernetesError
from clusterproof.plugins.transport.kubernetes import RunObjects, config_map, job


def create(api: Api, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Create an object; returns the result, empty if an earlier request created it. Raises KubernetesError."""
    try:
        return api.create(path, body)
    except KubernetesError as problem:
        if problem.reason != EXISTS:
            raise
        return {}


def create_owner(api: Api, run: RunObjects, ttl_s: int, program: str) -> RunObjects:
    """Create the Job, and the program that it owns; returns the run with both. Raises KubernetesError."""
    body = job(run, ttl_s)
    made = create(api, run.jobs, body)
    if not made:  # what it owns names its uid, which only a creation shows without the right to read Jobs
        with suppress(KubernetesError):
            api.delete(f"{run.jobs}/{run.name}", propagationPolicy="Background")
        made = api.create(run.jobs, body)
    run = run.of(made, program)
    create(api, run.config_maps, config_map(run, program))
    return run
