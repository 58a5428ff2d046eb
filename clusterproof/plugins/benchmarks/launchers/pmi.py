"""How the ranks of a Slurm step find each other (PMI): what Slurm offers them, and what to do if they do not."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

BEST = ("pmix", "pmi2")  # Open MPI speaks the first, MPICH and its derivatives the second
NONE = "none"
FLAG = "--mpi"

NOT_LAUNCHED = re.compile(r"Task launch for \S+ failed on node (\S+): (.*)")
_NO_LIBRARY = "can not load PMIx library"
_DEFAULT = re.compile(r"^MpiDefault\s*=\s*(\w+)", re.MULTILINE)
_LISTED = re.compile(r"^(?:srun: )?[^\S\n]*([a-z]\w*)[^\S\n]*$", re.MULTILINE)
_OPTION = re.compile(rf"(?:^| ){FLAG}[= ](\S+)")  # the value may be a separate word
_LISTED_FROM = "types are"


def listed(output: str) -> tuple[str, ...]:
    """The types listed by `srun --mpi=list`."""
    return tuple(dict.fromkeys(_LISTED.findall(output.partition(_LISTED_FROM)[2])))


def default(config: str) -> str:
    """The site's default in `scontrol show config`; 24.11 prints `(null)` for none."""
    match = _DEFAULT.search(config)
    return match[1] if match else NONE


def chosen(options: Sequence[str], site: str, has: Sequence[str]) -> str:
    """The user's choice, else the site's, else the best that Slurm has."""
    named = _OPTION.findall(" ".join(options))
    if named:
        return str(named[-1])
    return site if site != NONE else next((kind for kind in BEST if kind in has), NONE)


def is_without_library(used: str, own: str, nodes: Collection[str]) -> bool:
    """Whether srun reports that Slurm's PMIx plugin lacks its library: here, or on each of these nodes.

    On a node, slurmd logs the reason but srun does not print it (22.05: `Unspecified error`).
    """
    failed = {name for name, why in NOT_LAUNCHED.findall(own) if why.strip() == "Unspecified error"}
    return used.startswith("pmix") and (_NO_LIBRARY in own or failed.issuperset(nodes))


def advice_without_library(has: Sequence[str]) -> str:
    """What to do if Slurm lists PMIx but cannot load it."""
    other = "--srun-options=--mpi=pmi2" if "pmi2" in has else "--launcher mpirun"
    return (
        f"Slurm names pmix and cannot load it; expected libpmix.so on every node (Debian 12: libpmix-dev), or {other}"
    )


def advice(used: str, has: Sequence[str]) -> str:
    """What to do if ranks did not find each other."""
    others = [kind for kind in BEST if kind in has and kind != used]
    other = f"--srun-options={FLAG}={others[0]}" if others else "--launcher mpirun"
    if used != NONE:
        return f"srun offered them {used}; expected an MPI that speaks it, or {other}"
    if others:
        return f"srun offered them no PMI ({FLAG}={NONE}); expected {other}"
    kinds = ", ".join(has) or "nothing"
    return f"Slurm has no PMI for them (srun {FLAG}=list: {kinds}); expected its PMIx plugin, or {other}"
