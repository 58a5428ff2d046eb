"""Steps of `clusterproof return` without nodes: simulated results of `clusterproof check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusterproof.plugins.accept import RESULTS
from clusterproof.plugins.core.nodeset import expand
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.results import ResultsFile

PASS = Verdict.PASS
CLUSTER = "ssh:gpu[001-004]"
TYPED = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"
MEASUREMENT = "expected one measurement at least"


def result(check: str, verdict: Verdict, node: str = "n1", **more: Any) -> Result:
    return Result(check, node, verdict, message="" if verdict is PASS else "2; expected 0", **more)


LOADED = (result("gpu.gpu_exact", PASS),)
WELL = (result("gpu.no_uncorrected_ecc", PASS), result("gpu.no_xid", PASS))


@dataclass
class Launched:
    """Runs in which the checks given by name have these results and all others pass."""

    verdicts: Mapping[tuple[str, str], Verdict] = field(default_factory=dict)  # by node and check
    code: int = 0
    typed: list[list[str]] = field(default_factory=list)

    def __call__(self, command: Sequence[str], folder: Path) -> int:
        self.typed.append(list(command[:-1]))
        nodes = expand(next(word for word in command if word.startswith("--nodes=")).partition("=")[2])
        checks = ["gpu.gpu_exact"] if "perf" in command else ["gpu.no_uncorrected_ecc", "gpu.no_xid"]
        with ResultsFile(folder / RESULTS) as file:
            for node in nodes:
                for check in checks:
                    file.write(result(check, self.verdicts.get((node, check), PASS), node))
        return self.code
