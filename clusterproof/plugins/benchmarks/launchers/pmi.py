"""How the ranks of a Slurm step find each other (PMI): chosen from what Slurm has, unless it is given."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

BEST = ("pmix", "pmi2")  # Open MPI speaks the first, MPICH and its kin the second
NONE = "none"
FLAG = "--mpi"

NOT_LAUNCHED = re.compile(r"Task launch for \S+ failed on node (\S+): (.*)")
_NO_LIBRARY = "can not load PMIx library"
_DEFAULT = re.compile(r"^MpiDefault\s*=\s*(\w+)", re.MULTILINE)
_LISTED = re.compile(r"^(?:srun: )?[^\S\n]*([a-z]\w*)[^\S\n]*$", re.MULTILINE)
_OPTION = re.compile(rf"(?:^| ){FLAG}[= ](\S+)")  # the value may be a word of its own
_LISTED_FROM = "types are"


def listed(data: str) -> tuple[str, ...]:
    """What `srun --mpi=list` names."""
    return tuple(dict.fromkeys(_LISTED.findall(data.partition(_LISTED_FROM)[2])))


def default(config: str) -> str:
    """The site's own choice in `scontrol show config`; 24.11 has `(null)` for none."""
    found = _DEFAULT.search(config)
    return found[1] if found else NONE


def chosen(options: Sequence[str], site: str, has: Sequence[str]) -> str:
    """What a user says, else what the site does, else the best that Slurm has."""
    data = _OPTION.findall(" ".join(options))
    if data:
        return str(data[-1])
    return site if site != NONE else next((kind for kind in BEST if kind in has), NONE)


def is_without_library(used: str, own: str, nodes: Collection[str]) -> bool:
    """Whether srun's own words say that Slurm's PMIx plugin lacks its library: here, or on each of these nodes alike.

    On a node slurmd logs why and srun does not say (22.05: `Unspecified error`).
    """
    alike = {name for name, why in NOT_LAUNCHED.findall(own) if why.strip() == "Unspecified error"}
    return used.startswith("pmix") and (_NO_LIBRARY in own or alike.issuperset(nodes))


def advice_without_library(has: Sequence[str]) -> str:
    """What to do where Slurm names PMIx, and cannot load it."""
    other = "--srun-options=--mpi=pmi2" if "pmi2" in has else "--launcher mpirun"
    return (
        f"Slurm names pmix and cannot load it; expected libpmix.so on every node (Debian 12: libpmix-dev), or {other}"
    )


def advice(used: str, has: Sequence[str]) -> str:
    """What to do where ranks did not find each other."""
    others = [kind for kind in BEST if kind in has and kind != used]
    other = f"--srun-options={FLAG}={others[0]}" if others else "--launcher mpirun"
    if used != NONE:
        return f"srun offered them {used}; expected an MPI that speaks it, or {other}"
    if others:
        return f"srun offered them no PMI ({FLAG}={NONE}); expected {other}"
    kinds = ", ".join(has) or "nothing"
    return f"Slurm has no PMI for them (srun {FLAG}=list: {kinds}); expected its PMIx plugin, or {other}"
