"""Messages through each EFA device and back, out of what fi_pingpong prints."""

from __future__ import annotations

import re

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, every, optional, text, whole

MAX_WORDS = 120

_ROW = re.compile(
    r"^\S{1,12}\s{1,20}\S{1,12}\s{1,20}=\S{1,12}\s{1,20}\S{1,12}\s{1,20}[\d.]{1,12}s\s{1,20}(\d{1,9}\.\d{1,4})\s",
    re.MULTILINE,
)


@record
class Exchange(Reported):
    """One domain's; `exit` is the client's, None where it was ended or there was no server."""

    domain = Field(text)
    exit = Field(optional(whole))
    output = Field(text)
    server = Field(text)

    @property
    def mb_per_s(self) -> float | None:
        """10^6 bytes a second, None where no message came back."""
        row = _ROW.search(self.output)
        return float(row[1]) if row and self.exit == 0 else None

    @property
    def why_not(self) -> str:
        """What either end says of a failure."""
        how = "no end in its time" if self.exit is None else f"exit status {self.exit}"
        said = " ".join(f"{self.output} {self.server}".split())[:MAX_WORDS]
        return f"{how}: {said}" if said else how


@record
class Loopback(Reported):
    """The exchanges of a node."""

    exchanges = Field(every(Exchange), "domains", where="efa_loopback: domains")  # domain by domain
