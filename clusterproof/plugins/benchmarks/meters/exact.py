"""Exact integers between two nodes: PyTorch collectives over all their GPUs, comparing every element."""

from __future__ import annotations

import shlex

from clusterproof.plugins.agent.packing import text_of
from clusterproof.plugins.agent.payload import OWN, modules_of, started
from clusterproof.plugins.benchmarks import meters
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings, Output, printed
from clusterproof.plugins.catalog import exact_kinds_setting
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, Recording
from clusterproof.plugins.evidence.exact.facts_collective import NCCL, Blame, NodeResult, wrong_blocks
from clusterproof.plugins.evidence.pairs import Reading, is_believable

NAME = "exact"
PYTHONS = ("/usr/bin/python3", "/opt/pytorch/bin/python3", "/opt/conda/bin/python3")  # besides the first on PATH
BUDGET_S = 10.0  # for the rounds; each operation runs at least once
WITHIN_S = 100.0  # of a run's 120
PROGRAM = "clusterproof.plugins.evidence.exact.on_node.collectives"
HAS_TORCH = "import importlib.util as u; exit(u.find_spec('torch') is None)"
HERE = "127.0.0.1"
NODES = ("the first node", "the second node")
MAX_NAME = 253  # characters of a host's
FIND = """\
u=$(id -u)
t=
{own}
trusts() {{ [ "$u" != 0 ] || {{ o "$1" && o "${{1%/*}}/.."; }}; }}
program=
for each in {tried}; do
  each=$(command -v "$each" 2>/dev/null) && {trusted}"$each" -I -c {has_torch} 2>/dev/null && program=$each && break
done
{passed_over}="${passed_over}${{t:+; not run:$t}}"
{unless_found}
"""
TRUSTED = 'trusts "$each" && '  # as root: the program, and its environment, of which Python runs files at its start


def server(settings: MeterSettings, port: int, backend: str = NCCL) -> str:
    """The shell command of the end where all ranks meet. Raises ValueError."""
    return _shell(settings, {"node": 0, "address": HERE, "port": port, "backend": backend})


def client(settings: MeterSettings, address: str, port: int, backend: str = NCCL) -> str:
    """The shell command of the end that connects. Raises ValueError."""
    return _shell(settings, {"node": 1, "address": address, "port": port, "backend": backend})


def read(_settings: MeterSettings, outputs: tuple[Output, ...]) -> Reading:
    """The result of the run: the all-reduce's busbw; or which elements were wrong, and whose fault that is."""
    seconds = max((output.seconds for output in outputs), default=0.0)
    documents = [printed.object_in(output.text) for output in outputs]  # the client's first: it is the second node
    nodes = [NodeResult({**document, "node": 1 - end}) for end, document in enumerate(documents) if document]
    hosts = tuple(str((document or {}).get("host", ""))[:MAX_NAME] for document in documents[::-1])
    hosts = hosts if all(hosts) and len({*hosts}) == len(hosts) else NODES
    with Recording():  # unreadable output of one rank must not hide errors of another
        blame = Blame.of(nodes, hosts) if nodes else None
    if blame and blame.blocks:
        problem = printed.one_line(blame.description)
        return Reading(is_correct=False, problem=problem, culprit=blame.node, seconds=seconds, hosts=hosts)
    try:
        problem = _problem(nodes, outputs)
        if problem:
            return printed.failed(problem, outputs)
        speed, ranks = min(rank.gb_per_s for node in nodes for rank in node.answered), nodes[0].ranks
        size_bytes = nodes[0].message_bytes
    except (Incomplete, NotApplicable) as missing:
        return Reading(problem=printed.one_line(str(missing)), seconds=seconds)
    algbw = speed * ranks / (2 * (ranks - 1)) if ranks > 1 else None
    return Reading(speed, algbw, None, size_bytes, is_correct=True, seconds=seconds, ranks=ranks, hosts=hosts)


def by_hand(node: str, other: str, _collective: str) -> str:
    """What a person types on one of the nodes: it compares results too, but not where they are wrong."""
    return f"mpirun -np 16 --host {node}:8,{other}:8 alltoall_perf -b 1G -e 1G -g 1 -c 1"


METER = Meter(NAME, read, server=server, client=client, by_hand=by_hand, has_a_rank_for_each_gpu=True)


def _problem(nodes: list[NodeResult], outputs: tuple[Output, ...]) -> str:
    """Why nothing was proven; empty if everything was. Raises Incomplete."""
    if len(nodes) != len(NODES):  # an end that is killed after its complete output is fine
        ended = next((output for output in outputs if output.exit != 0), None)
        return printed.problem_of(ended or Output("\n".join(output.text for output in outputs), 0))
    for node in nodes:
        wrong_blocks(node)  # raises for unreadable output
        for local_rank, rank in enumerate(node.answered):
            if rank.error:
                return f"rank {node.number(local_rank)}: {rank.error}"
            for operation in rank.operations:
                if (operation.why or operation.rounds < 1) and not node.gap:
                    return f"{operation.name} was not made: {operation.why or 'no round'}"
            if not is_believable(rank.gb_per_s):
                return f"rank {node.number(local_rank)}: its busbw is {rank.gb_per_s:g} GB/s; expected more than 0"
    return next((f"{node.gap}; expected nccl" for node in nodes if node.gap), "")


def _shell(settings: MeterSettings, end: dict[str, object]) -> str:
    """Lines that find a Python with PyTorch and run one node's ranks in it."""
    tried = [settings.program] if settings.program else ["python3", *PYTHONS]
    missing = (
        f"{settings.program} is not a program here that has PyTorch"
        if settings.program
        else f"PyTorch is not installed: looked for it in {', '.join(tried)}"
    )
    find = FIND.format(
        tried=" ".join(map(shlex.quote, tried)),
        has_torch=shlex.quote(HAS_TORCH),
        own=OWN,
        trusted="" if settings.program else TRUSTED,
        passed_over=meters.PASSED_OVER,
        unless_found=meters.unless_found(f"{missing}; install it, or name a Python that has it: --meter-program PATH"),
    )
    return f'{meters.exports(settings.environment)}{find}exec "$program" -I -c {shlex.quote(_program(settings, end))}\n'


def _program(settings: MeterSettings, end: dict[str, object]) -> str:
    request = {
        **end,
        "nodes": len(NODES),
        "ranks": settings.ranks_per_node,
        "kinds": exact_kinds_setting(),
        "budget_s": BUDGET_S,
        "within_s": WITHIN_S,
        "seed": end["port"],  # both ends draw the same integers
    }
    return text_of(started(PROGRAM, modules_of(PROGRAM), (request,)))
