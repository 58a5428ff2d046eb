"""Objects of a group of the API of which not every cluster has every version, or any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from clusterproof.plugins.kubernetes.api import Api, KubernetesError

NOT_FOUND = 404


def first_version(api: Api, group: str, versions: Iterable[str], kind: str) -> list[Mapping[str, Any]] | None:
    """The objects of a kind by the first version that the cluster serves; None where it serves none.

    Raises KubernetesError.
    """
    for version in versions:
        try:
            return list(api.listed(f"{group}/{version}/{kind}"))
        except KubernetesError as problem:
            if problem.status != NOT_FOUND:
                raise
    return None
