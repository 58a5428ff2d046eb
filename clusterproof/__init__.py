"""Public names for authors of checks, inventories, connections and collectors; everything else may change.

A deprecated name stays for at least one more minor version, and warns with its replacement when used.
Names are imported lazily.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not typing's: a prolog imports this file first
if TYPE_CHECKING:
    from typing import Any

    from clusterproof.plugins.core import __version__ as __version__
    from clusterproof.plugins.core.cluster import Cluster as Cluster
    from clusterproof.plugins.core.cluster import InventoryError as InventoryError
    from clusterproof.plugins.core.cluster import Target as Target
    from clusterproof.plugins.core.errors import ClusterproofError as ClusterproofError
    from clusterproof.plugins.core.evidence import Unreached as Unreached
    from clusterproof.plugins.core.marks import mark as mark
    from clusterproof.plugins.core.result import Finding as Finding
    from clusterproof.plugins.core.result import Result as Result
    from clusterproof.plugins.core.verdict import Concern as Concern
    from clusterproof.plugins.core.verdict import Incomplete as Incomplete
    from clusterproof.plugins.core.verdict import NotApplicable as NotApplicable
    from clusterproof.plugins.core.verdict import Verdict as Verdict
    from clusterproof.plugins.core.verdict import concern as concern
    from clusterproof.plugins.core.verdict import concern_if as concern_if
    from clusterproof.plugins.core.verdict import fail as fail
    from clusterproof.plugins.core.verdict import fail_if as fail_if
    from clusterproof.plugins.core.verdict import incomplete as incomplete
    from clusterproof.plugins.core.verdict import not_applicable as not_applicable
    from clusterproof.plugins.core.verdict import part as part
    from clusterproof.plugins.evaluation.needs import reads as reads
    from clusterproof.plugins.evaluation.routing import evidence as evidence
    from clusterproof.plugins.evidence.aws.facts_fsx import FileSystem as FileSystem
    from clusterproof.plugins.evidence.cluster import ClusterFacts as ClusterFacts
    from clusterproof.plugins.evidence.field import readings as readings
    from clusterproof.plugins.evidence.field import require as require
    from clusterproof.plugins.evidence.gpu.facts import Gpu as Gpu
    from clusterproof.plugins.evidence.network.facts import RdmaDevice as RdmaDevice
    from clusterproof.plugins.evidence.neuron.facts import NeuronDevice as NeuronDevice
    from clusterproof.plugins.evidence.node import Node as Node
    from clusterproof.plugins.evidence.pci.facts import PciDevice as PciDevice
    from clusterproof.plugins.evidence.storage.facts import NvmeController as NvmeController
    from clusterproof.plugins.evidence.storage.facts_lustre import LustreClient as LustreClient
    from clusterproof.plugins.evidence.storage.facts_lustre import LustreTarget as LustreTarget
    from clusterproof.plugins.evidence.storage.facts_mounts import Mount as Mount
    from clusterproof.plugins.transport import Answer as Answer
    from clusterproof.plugins.transport import Connection as Connection
    from clusterproof.plugins.transport import Limits as Limits
    from clusterproof.plugins.transport import Program as Program
    from clusterproof.plugins.transport import Unusable as Unusable
    from clusterproof.plugins.transport import connection_for as connection_for

_HOMES = {  # module of clusterproof.plugins: its public names, each since 0.1.0
    "core.cluster": (
        "Cluster",
        "InventoryError",
        "Target",
    ),
    "core.errors": ("ClusterproofError",),
    "core.evidence": ("Unreached",),
    "core.marks": ("mark",),
    "core.result": (
        "Finding",
        "Result",
    ),
    "core.verdict": (
        "Concern",
        "Incomplete",
        "NotApplicable",
        "Verdict",
        "concern",
        "concern_if",
        "fail",
        "fail_if",
        "incomplete",
        "not_applicable",
        "part",
    ),
    "core": ("__version__",),
    "evaluation.needs": ("reads",),
    "evaluation.routing": ("evidence",),
    "evidence.aws.facts_fsx": ("FileSystem",),
    "evidence.cluster": ("ClusterFacts",),
    "evidence.field": (
        "readings",
        "require",
    ),
    "evidence.gpu.facts": ("Gpu",),
    "evidence.network.facts": ("RdmaDevice",),
    "evidence.neuron.facts": ("NeuronDevice",),
    "evidence.node": ("Node",),
    "evidence.pci.facts": ("PciDevice",),
    "evidence.storage.facts": ("NvmeController",),
    "evidence.storage.facts_lustre": (
        "LustreClient",
        "LustreTarget",
    ),
    "evidence.storage.facts_mounts": ("Mount",),
    "transport": (
        "Answer",
        "Connection",
        "Limits",
        "Program",
        "Unusable",
        "connection_for",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = [*_HOME_OF]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    from importlib import import_module

    if name not in _HOME_OF:
        raise AttributeError(f"module 'clusterproof' has no attribute {name!r}")
    value = getattr(import_module(f"clusterproof.plugins.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
