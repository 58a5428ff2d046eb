"""The collectives in a trace: the operation of its NCCL kernels, their group, and their order.

Newer versions of PyTorch annotate kernels (`Collective name`, `Process Group Ranks`); otherwise the names of kernels
and of the operators that started them are used, and all are assumed to be of the group of all ranks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.collectives import (
    ALL_TO_ALL,
    MIN_STEPS,
    CollectiveCall,
    Traced,
    is_of_pair,
    is_synchronizing,
    kind_of_kernel,
)

MAX_CALLS = 200_000  # of a trace
MAX_TEXT = 120  # characters of a group
_STARTED = re.compile(r"(?:nccl:|c10d::)_?(?:(all_?to_?all)|i?send|i?recv)")
STARTED_BY = ("nccl:", "c10d::")  # prefixes of operators that start a collective
_UNSAID = ("", "undefined")


@record
class _CollectiveKernel:
    """A kernel of a collective."""

    start: float
    seconds: float
    group: str
    ranks: int  # 0: unknown
    kind: str
    number: int | None


@dataclass
class Collectives:
    """The collectives of one trace."""

    kernels: list[_CollectiveKernel] = field(default_factory=list)
    starts_pairs: bool = False
    starts_all_to_all: bool = False
    has_unnamed_pairs: bool = False
    has_named_pairs: bool = False
    names: dict[str, str] = field(default_factory=dict)  # of groups, without duplicates

    def started(self, operator: str) -> None:
        """Add an operator whose name begins with one of `STARTED_BY`."""
        if match := _STARTED.match(operator):
            if match[1]:
                self.starts_all_to_all = True
            else:
                self.starts_pairs = True

    def note(self, kernel: str, start: float, lasted: float, args: object) -> None:
        """Add a kernel, in µs, with its annotations."""
        arguments: Mapping[str, Any] = args if isinstance(args, dict) else {}
        collective = _text(arguments.get("Collective name"))
        if is_of_pair(kernel):
            if not collective:
                self.has_unnamed_pairs = True
            elif not is_synchronizing(collective):
                self.has_named_pairs = True
        kind = ALL_TO_ALL if is_of_pair(kernel) and not collective else kind_of_kernel(kernel, collective)
        name, purpose = _text(arguments.get("Process Group Name")), _text(arguments.get("Process Group Description"))
        parts = (name, "" if purpose in _UNSAID else purpose, _text(arguments.get("Process Group Ranks")))
        ranks, number = _number(arguments.get("Group size")), arguments.get("Seq")
        group = " ".join(part for part in parts if part)
        if is_synchronizing(kind) and len(self.kernels) <= MAX_CALLS:
            group = self.names.setdefault(group, group)
            self.kernels.append(_CollectiveKernel(start, lasted, group, ranks or 0, kind, _number(number)))

    @property
    def has_pairs(self) -> bool:
        """Whether ranks send to single ones, as between pipeline stages; an all-to-all goes to all."""
        unnamed = self.has_unnamed_pairs and (self.starts_pairs or not self.starts_all_to_all)
        return self.has_named_pairs or unnamed

    def calls(self, rank: int, world: int, steps: Sequence[int]) -> Iterator[Traced]:
        """Those that end on all ranks at once, in order; of `world` ranks if their group is unknown.

        A collective is numbered within its group; otherwise by its place among equally many in the same steps.
        """
        is_one_group = world > 0 and not self.has_pairs
        known = [
            kernel for kernel in self.kernels if (kernel.group or is_one_group) and (kernel.number is not None or steps)
        ]
        if len(self.kernels) > MAX_CALLS:
            return
        counts = Counter((kernel.group, kernel.kind) for kernel in known)
        done: Counter[tuple[str, str]] = Counter()
        few = "" if len(steps) >= MIN_STEPS else f" in fewer than {MIN_STEPS} steps of a trace"
        for kernel in sorted(known, key=lambda kernel: kernel.start):
            key = kernel.group, kernel.kind
            number = done[key]
            done[key] += 1
            span = f"steps {min(steps)}-{max(steps)}" if steps else "no steps"
            group, count = f"{kernel.group or 'all'}, {span}", counts[key]
            if kernel.number is not None:
                group, count, number = kernel.group, 0, kernel.number
            yield Traced(
                CollectiveCall(
                    group, kernel.ranks or world, rank, "", number, kernel.seconds, kernel.kind, of=count, unfit=few
                )
            )


def _text(value: object) -> str:
    text = value[:MAX_TEXT].strip() if isinstance(value, str) else ""
    return text if text.isprintable() else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None
