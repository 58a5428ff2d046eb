"""Runs programs in a Python with PyTorch, which the tests' own Python lacks.

Loading PyTorch takes most of the time of such a program. So each is a fork of one Python that has loaded it, with its
own environment and output; where the process itself is the subject, a program is started afresh.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[3]

PARENT = """
import gc, json, os, runpy, sys, tempfile, traceback
import torch

gc.freeze()


def run(environment, words, output):
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT, 0o600), 1)
    sys.argv[1:] = words[1:]
    code = 0
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


for line in sys.stdin:
    child = os.fork()
    if not child:
        run(*json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class TorchPython:
    """A Python with PyTorch, and the process that forks programs."""

    path: str
    parent: subprocess.Popen[str]

    def printed_by(self, program: str, *arguments: str) -> str:
        """The last line that a module of these tests prints in a fork."""
        with TemporaryDirectory() as folder:
            output = Path(folder, "stdout")
            assert self.parent.stdin
            assert self.parent.stdout
            self.parent.stdin.write(json.dumps((environment(), (program, *arguments), str(output))) + "\n")
            self.parent.stdin.flush()
            assert self.parent.stdout.readline() == "0\n"
            return output.read_text(encoding="utf-8").splitlines()[-1]

    def printed_afresh_by(self, program: str, *arguments: str) -> str:
        """The last line that it prints in a process of its own."""
        command = [self.path, "-m", program, *arguments]
        ran = subprocess.run(command, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        return ran.stdout.splitlines()[-1]


@contextlib.contextmanager
def forking(python: str) -> Iterator[TorchPython]:
    """Start one that runs until the block ends."""
    with subprocess.Popen(
        [python, "-c", PARENT],
        env=environment(),
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        yield TorchPython(python, parent)
        parent.terminate()  # it waits for a program to fork


def environment() -> dict[str, str]:
    """The environment variables of a program, which finds these tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
