"""The help of `clusterproof`: one screen, or less when it is called without arguments."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable

from clusterproof.plugins.command_line.subcommands import SUBCOMMANDS
from clusterproof.plugins.core.kinds import FILE, HYPERPOD, KINDS

_HEAD = """\
clusterproof: proves a GPU cluster fit for training. Nothing on a node is changed, and nothing passes without evidence.

"""
_OF_RUN = ("clusterproof --run PATH", "evaluate a training run by its traces, logs or dumps (docs/training-runs.md)")
_TAIL = """
often used options
  --nodes NODESET, --exclude NODESET   only these nodes of X; but not these
  -m prolog | gpu | perf | …           by occasion, subsystem or owner; perf loads the hardware: only when named
  -k NAME                              checks by name
  --expect gpus=8,efa=32               what every node must have; outranks its instance type
  --policy FILE                        a site's thresholds, expectations and exceptions; ./clusterproof.toml by itself
  --since 24h                          what counts of the kernel log (default: all of this boot)
  --sudo                               ask sudo -n for what only root may read
  --report DIR, --no-report            where the reports go
  --record DIR                         keep the evidence, for replay:DIR
  --redact                             write nothing that names nodes, people or accounts
  --since-last, --notify URL           what is new; notify Slack, e-mail, SNS or a webhook
  --help-all                           every option, pytest's own too

exit codes: 0 nothing failed · 1 a check failed · 2 interrupted · 3 internal error · 4 bad command line or inventory
            5 nothing was checked · 10 nothing failed, but something could not be measured (see --incomplete)
            11 --k8s-gate could not write all that it had to
"""


_SHORTEST = """\
clusterproof checks that a GPU cluster is fit for training. It changes nothing.

  clusterproof check local                 check this machine
  clusterproof check 'ssh:gpu[001-016]'    check nodes over ssh
  clusterproof check slurm:PARTITION       ... nodes of Slurm, by one srun
  clusterproof check k8s:CONTEXT           ... nodes of Kubernetes, by pods
  clusterproof check NAME                  ... a HyperPod cluster
  clusterproof check demo                  ... a recorded cluster, to try it

  clusterproof --run PATH          evaluate a training run by its traces or logs
"""
_MORE = """\
clusterproof help [COMMAND] says more; --help-all lists every option.
"""


def shortest_help() -> str:
    """The answer to `clusterproof` alone: it fits a terminal of 24 lines of 80 columns."""
    shown_before = ("check", "help", "version")
    rows = (subcommand for subcommand in SUBCOMMANDS if subcommand.name not in shown_before)
    return _SHORTEST + "".join(f"  clusterproof {row.usage:<20}{row.summary}\n" for row in rows) + _MORE


def short_help(columns: int = 0) -> str:
    """The text, at most 60 lines of 120 columns; lines too long for the terminal wrap to their own column."""
    check, *others = (
        (f"clusterproof {row.usage}", row.summary + f" ({row.page})" * bool(row.page)) for row in SUBCOMMANDS
    )
    kinds = ((kind.form, kind.help) for kind in (*KINDS, HYPERPOD, FILE))
    text = f"{_HEAD}{_rows([check, _OF_RUN, *others])}\nX is one of\n{_rows(kinds)}{_TAIL}"
    width = columns or shutil.get_terminal_size().columns
    return "".join(f"{_folded(line, width)}\n" for line in text.splitlines())


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    return "".join(f"  {form:<36} {description}\n" for form, description in rows)


def _folded(line: str, width: int) -> str:
    column = re.match(r" *(?:exit codes: |\S.*?\S {2,})?", line)
    further = " " * (len(column[0]) if column else 0)
    return textwrap.fill(line, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)
