"""Memory controllers and the errors that they have counted."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, every, text, whole

DAY_S = 86400


@record
class MemoryModule(Reported):
    """A memory module that has counted errors; `name` is its label where the firmware gives one."""

    name = Field(text)
    corrected = Field(whole)
    uncorrected = Field(whole)


@record
class MemoryController(Reported):
    """A memory controller. Counts are of the last `counted_s` seconds, as a rule since its driver was loaded."""

    name = Field(text)
    corrected = Field(whole)
    uncorrected = Field(whole)
    counted_s = Field(whole)
    modules = Field(every(MemoryModule))

    @property
    def label(self) -> str:
        """`mc0: CPU_SrcID#0_MC#0_Chan#1_DIMM#0`: its name, and the modules that counted errors. Raises Incomplete."""
        modules = ", ".join(module.name for module in self.modules)
        return f"{self.name}: {modules}" if modules else self.name

    @property
    def corrected_per_day(self) -> float:
        """How many errors a day it corrects; in the first day, how many it has. Raises Incomplete."""
        return self.corrected / max(self.counted_s / DAY_S, 1.0)
