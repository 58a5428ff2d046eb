"""Alters third-party files at random and reads them: none may end in an internal error, or take more than 5 s of CPU
per megabyte. The last line is JSON: the number of examples, how many were accepted, the slowest, and failures.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict

from scripts.arguments import Arguments, count
from tests.fuzz.inputs import INPUTS
from tests.fuzz.trying import IDLE_S, tried


def main(arguments: Sequence[str]) -> int:
    """Fuzz the inputs named on the command line; return 0 if nothing was found."""
    parser = Arguments("scripts/fuzz", __doc__)
    parser.add_argument("--seconds", type=count, default=60, metavar="N", help="for each input (default 60)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="random seed (by default another each time)")
    parser.add_argument("inputs", nargs="*", metavar="INPUT", help=f"{', '.join(INPUTS)}; all by default")
    options = parser.parse_args(arguments)
    expected = "one of " + ", ".join(INPUTS)
    names = [name for word in options.inputs or [""] for name in parser.chosen(word, INPUTS, expected)]
    results = {}
    for name in dict.fromkeys(names):
        result = tried(INPUTS[name], options.seconds, options.seed, most_s=IDLE_S)
        results[name] = asdict(result)
        sys.stdout.write(f"{name}: {result.examples} examples, {result.read} read, {result.worst_s:.2f} s at most\n")
        sys.stdout.write("".join(f"FAILED      {failure}\n" for failure in result.failures))
        sys.stdout.flush()
    failed = sum(len(result["failures"]) for result in results.values())
    sys.stdout.write(f"{json.dumps({'seed': options.seed, 'failed': failed, 'inputs': results})}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
