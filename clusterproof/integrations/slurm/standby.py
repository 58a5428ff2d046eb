"""A process forked early, while this one is small, which runs the probe on this machine.

The part of nvidia-ml-py that the probe uses is cached as compiled code: loading the whole module takes longer than the
GPUs. The same part is sent to nodes without nvidia-ml-py. The cache is not used if it is of another nvidia-ml-py,
probe or Python.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import select
import signal
import sys
import time
import zlib
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder

from clusterproof.integrations.slurm import kept_code
from clusterproof.integrations.slurm.state import State
from clusterproof.plugins.agent import program
from clusterproof.plugins.agent.program import ProbeOptions, module_of
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import NodeEvidence, Unreached
from clusterproof.plugins.transport import MAX_ANSWER_BYTES, Answer

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from clusterproof.plugins.agent.run import Request

RECORD = "pynvml"
MODULE = "pynvml"
MADE_BY = ("payload.py", "minify.py", "nvidia_ml.py")  # files of the agent that determine it, besides the collector

RUNNER = "clusterproof.plugins.agent.run"
CHUNK_BYTES = 65536
MAX_DESCRIPTORS = 4096
OF_NVML = ("ctypes",)  # its other imports
SEPARATE_COLLECTORS = frozenset({"nvml"})  # collectors that load what no other needs: pynvml
REAP_S = 0.1  # for killed processes; what the kernel keeps alive is not waited for


class PynvmlFinder:
    """An import hook: finds and loads the part of nvidia-ml-py that is used."""

    def __init__(self, code: bytes) -> None:
        self._code = code

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Called by the import system: a specification for this module, else None."""
        return ModuleSpec(name, self) if name == MODULE else None  # type: ignore[arg-type] # by its methods

    def create_module(self, _spec: ModuleSpec) -> None:
        """Use Python's default module creation."""

    def exec_module(self, module: object) -> None:
        """Execute the module's code."""
        exec(marshal.loads(self._code), vars(module))  # noqa: S102, S302 - our own, from a folder of root's


def part_of(state: State) -> bytes:
    """The cached code; empty if there is none that matches."""
    record = state.read(RECORD)
    if not record or record.get("of") != _made_of():
        return b""
    try:
        return a2b_base64(record["code"])
    except (Error, KeyError, TypeError, ValueError):
        return b""


def keep_part(state: State) -> None:
    """Create it, in about a tenth of a second, and cache it if possible."""
    from clusterproof.plugins.agent.nvidia_ml import pynvml_for
    from clusterproof.plugins.agent.payload import modules_for

    made_of = _made_of()
    if not made_of:
        return
    source = pynvml_for(modules_for({program.module_of("nvml")}).values())
    code = marshal.dumps(compile(source, f"{MODULE}.py", "exec", dont_inherit=True))
    with contextlib.suppress(OSError):
        state.write(RECORD, {"of": made_of, "code": b2a_base64(code, newline=False).decode()})


def keep_code(state: State, has_time: Callable[[], bool]) -> None:
    """Cache the code of this run's imports, and of the probe's, unless cached already."""
    if kept_code.is_complete():
        return
    for module in (RUNNER, *OF_NVML):
        with contextlib.suppress(ImportError):  # of ctypes, if Python was built without it
            import_module(module)
    files = {module_of(name): file for name, file in program.files().items()}
    content = kept_code.content({**kept_code.imported(), **files}, has_time)
    if content:
        state.leave(kept_code.NAME, content)


def _made_of() -> str:
    """A key that changes with nvidia-ml-py, the probe's files and Python; empty without nvidia-ml-py."""
    spec = PathFinder.find_spec(MODULE)
    if spec is None or not spec.origin:
        return ""
    agent = os.path.dirname(program.__file__)
    made_by = [file for name, file in sorted(program.files().items()) if name.startswith("nvml")]
    read = [spec.origin, *made_by, *(f"{agent}/{name}" for name in MADE_BY)]
    versions = [(file, stat.st_size, stat.st_mtime_ns) for file, stat in ((file, os.stat(file)) for file in read)]
    return f"{zlib.crc32(repr(versions).encode()):08x} {sys.hexversion:x}"


class StandBy:
    """The forked process: it loads the probe at once, and waits for its request.

    The probe's own files are loaded from the installation: nothing is packed, sent, unpacked or compiled.
    """

    def __init__(self, nvml: bytes = b"") -> None:
        """Start it; `nvml` is the cached code of the used part of nvidia-ml-py, if any."""
        self._nonce = "cp" + os.urandom(5).hex()
        self._collectors: tuple[str, ...] = ()
        ordered, self._orders = os.pipe()
        self._answers, answering = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.close(self._orders)
            os.close(self._answers)
            _stand_by(ordered, answering, nvml)
        os.close(ordered)
        os.close(answering)

    def begin(self, collectors: Iterable[str], options: ProbeOptions) -> None:
        """Send the request."""
        request = options.request({collector: module_of(collector) for collector in collectors})
        self._collectors = tuple(request["collectors"])
        os.write(self._orders, json.dumps([request, self._nonce]).encode() + b"\n")

    def evidence(self, node: str, timeout_s: float) -> NodeEvidence:
        """The evidence of this node that has been returned by then."""
        from clusterproof.plugins.transport.gather import evidence_of  # loaded while the probe reads

        began = time.monotonic()
        output, in_time = self._answer(began + timeout_s)
        self.end()
        unreached = None if in_time else Unreached.TIMED_OUT
        detail = "" if in_time else f"did not end within {timeout_s:g} s; {len(output)} bytes came"
        answer = Answer(output, unreached, detail, time.monotonic() - began)
        return evidence_of(Target(node), answer, self._nonce, self._collectors)

    def end(self) -> None:
        """Kill the process and its group; its leftovers notice that nobody listens. May be called twice."""
        if not self._pid:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.close(self._orders)
        os.close(self._answers)
        until = time.monotonic() + REAP_S
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
            time.sleep(0.001)
        self._pid = 0

    def _answer(self, deadline: float) -> tuple[bytes, bool]:
        """The output of the process until it ends, and whether it ended in time."""
        output = bytearray()
        while len(output) < MAX_ANSWER_BYTES:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([self._answers], [], [], left_s)[0]:
                return bytes(output), False
            read = os.read(self._answers, CHUNK_BYTES)
            if not read:
                break
            output += read
        return bytes(output), True


def _stand_by(ordered: int, answering: int, nvml: bytes) -> None:
    """Become the probe. Never returns."""
    try:
        os.setsid()
        for standard, descriptor in enumerate((ordered, answering, answering)):
            os.dup2(descriptor, standard)
        os.closerange(3, MAX_DESCRIPTORS)  # including the run's lock, which must not outlive it
        if nvml:
            sys.meta_path.insert(0, PynvmlFinder(nvml))
        import_module(RUNNER)
        order = sys.stdin.readline()
        if order:
            _probe(*json.loads(order))
    finally:
        os._exit(0)


def _probe(request: Request, nonce: str) -> None:
    """Answer the request, and exit."""
    from clusterproof.plugins.agent.run import main

    for name, (module, _) in request["collectors"].items():
        if name not in SEPARATE_COLLECTORS:
            import_module(module)  # once, before the collectors are forked
    print(f"{nonce}:begin.", flush=True)  # noqa: T201 - the frame's first word
    main(request, nonce, "")
