"""Which node of a pair a failure is attributed to, from what a meter read and what was seen of the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from clusterproof.plugins.evidence.pairwise.reading import NOT_AT_FAULT, Reading

NOT_STARTED = (126, 127)  # of a shell


def attributed(reading: Reading, called: Mapping[str, Iterable[str]], was_ended: bool = False) -> Reading:
    """The measurement with its culprit under the name of a node of the pair; `called` are the names each goes by there.

    What programs say of each other once they are ended from outside (`was_ended`) names nobody.
    """
    if not reading.culprit:
        return reading
    data = _short(reading.culprit)
    meant = [node for node, names in called.items() if data in map(_short, (node, *names))]
    return replace(reading, culprit=meant[0] if len(meant) == 1 and not was_ended else "")


def _short(name: str) -> str:
    """A host's name without its domain; an address as it is."""
    return name if name[:1].isdecimal() or ":" in name else name.partition(".")[0]


def at_fault(unreached: Mapping[str, str]) -> str:
    """The one node of these that was not reached and should have been, by its name; empty where there is none."""
    at_fault = [node for node, why in unreached.items() if NOT_AT_FAULT not in why]
    return at_fault[0] if len(unreached) == len(at_fault) == 1 else ""


def silenced(reading: Reading, silent: Mapping[str, str]) -> Reading:
    """A failure with the nodes that are silent since, and why: one alone is at fault, whatever programs say."""
    if reading.busbw_gb_per_s is not None or not silent:
        return reading
    words = ", ".join(f"{node} does not answer any more: {why}" for node, why in silent.items())
    culprit = next(iter(silent)) if len(silent) == 1 else reading.culprit
    return replace(reading, problem=f"{reading.problem}; {words}", culprit=culprit)
