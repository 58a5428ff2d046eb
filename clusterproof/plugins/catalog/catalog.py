"""The numbers that a run goes by: the catalogue's rows, and a site's own in their place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from clusterproof.plugins.catalog.instance_types import instance_types, machine_row
from clusterproof.plugins.catalog.thresholds import SITE, threshold_row
from clusterproof.plugins.core.cluster import InstanceType
from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.core.verdict import Incomplete

if TYPE_CHECKING:
    from clusterproof.plugins.core.policy import Policy

_ACCELERATED = re.compile(r"(?:ml\.)?(?:p|g|gr|trn|inf|dl)\d")  # families of types that have accelerators


@record
class Catalog:
    """Thresholds and instance types: those of a site, which are here, before those that are packaged."""

    thresholds: Mapping[str, float] = field(default_factory=dict)
    instance_types: Mapping[str, InstanceType] = field(default_factory=dict)

    @staticmethod
    def of(policy: Policy) -> Catalog:
        """The catalogue as a site's policy has it."""
        is_packaged = not policy.thresholds and not policy.instance_types
        return PACKAGED if is_packaged else Catalog(policy.thresholds, policy.instance_types)

    def threshold(self, name: str) -> float:
        """The number called `table.key` (`shm.minimum_gib`), in the unit of its row.

        Raises CatalogError; Incomplete for a site's own (`site.key`) that its policy does not set.
        """
        if name in self.thresholds:
            return self.thresholds[name]
        if name.startswith(SITE):
            key = name.removeprefix(SITE)
            raise Incomplete(f"the policy sets no {key}; expected {key} = NUMBER under [thresholds.site]")
        return threshold_row(name).value

    def instance_type(self, name: str) -> InstanceType | None:
        """The row of a type by EC2's or SageMaker's name (`ml.p5.48xlarge`) or a machine's (`DGX H100`), if any."""
        name = name.strip().removeprefix("ml.")
        return self.instance_types.get(name) or instance_types().get(name) or machine_row(name)

    def accelerators(self, name: str) -> int | None:
        """How many GPUs or Neuron devices an instance of a type has; None where no row has it."""
        row = self.instance_type(name)
        if row is None:
            return None if _ACCELERATED.match(name) else 0
        return row.gpus or row.neuron_devices or (0 if row.gpus == 0 else None)

    def efa_devices(self, name: str) -> int | None:
        """How many EFA devices an instance of a type has at most; None where no row has it."""
        row = self.instance_type(name)
        return row.efa if row else None


PACKAGED = Catalog()
