"""A node's load and pair measurements. Logs that people collected are evaluated by the same rules.

The classes for measurements are imported only when there is something to read: in a prolog there is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clusterproof.plugins.core.typed import TYPE_CHECKING, Any
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.fact import CollectorData, captured_as, collected_by
from clusterproof.plugins.evidence.field import readings

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.exact.facts import CpuExact, GpuExact
    from clusterproof.plugins.evidence.exact.facts_collective import ExactCollective
    from clusterproof.plugins.evidence.exact.facts_step import ExactStep
    from clusterproof.plugins.evidence.node import Node
    from clusterproof.plugins.evidence.pairs import PairsOfNode
    from clusterproof.plugins.evidence.perf.facts import FsBandwidth, Loopback, ProgramRun
    from clusterproof.plugins.evidence.perf.facts_logs import DcgmDiag, NcclLog, NcclTests, Nccom
    from clusterproof.plugins.evidence.perf.gpu_speed import GpuBandwidth, GpuGemm
    from clusterproof.plugins.evidence.perf.stress import StressNg


@collected_by("dcgm_diag", uncaptured="no log of dcgmi diag was captured, and no diagnostic run (-m perf does)")
def dcgm_diag(node: Node, measured: CollectorData) -> DcgmDiag:
    """Every run of `dcgmi diag`: those of a capture, or the one under load. Raises Incomplete."""
    from clusterproof.plugins.evidence.perf.facts import ProgramRun
    from clusterproof.plugins.evidence.perf.facts_logs import DcgmDiag

    if "logs" in measured.value:
        return DcgmDiag(measured.value)
    require_hardware(node, measured, "gpus")
    ran = ProgramRun(measured.value)
    from clusterproof.plugins.evidence.perf import parse_dcgm as dcgmi  # imported only if there is something to read

    if not dcgmi.is_json(ran.output):
        raise Incomplete(f"{ran.ended}; expected the JSON of its results")
    return DcgmDiag(understood(ran, dcgmi.read_json, f"{ran.output}\nexit: {ran.exit}\n")["dcgm_diag"])


@collected_by("nccom", uncaptured="no log of nccom-test was captured, and none was run (-m perf does)")
def nccom(node: Node, measured: CollectorData) -> Nccom:
    """Every run of nccom-test: those of a capture, or the one under load. Raises NotApplicable."""
    from clusterproof.plugins.evidence.perf.facts import ProgramRun
    from clusterproof.plugins.evidence.perf.facts_logs import Nccom

    if "logs" in measured.value:
        return Nccom(measured.value)
    if "none" in measured.value and not node.neuron_devices_due:
        raise NotApplicable("no Neuron device on this node")
    ran = ProgramRun(measured.value)
    from clusterproof.plugins.evidence.perf import parse_nccom as form

    return Nccom(understood(ran, form.read_table, ran.as_saved)["nccom"])


@collected_by("node_busbw")
def node_busbw(node: Node, measured: CollectorData) -> NcclLog:
    """The all-reduce over this node's own GPUs. Raises NotApplicable if it has only one."""
    from clusterproof.plugins.evidence.perf.facts import ProgramRun
    from clusterproof.plugins.evidence.perf.facts_logs import NcclLog

    require_hardware(node, measured, "gpus", least=2)
    ran = ProgramRun(measured.value)
    from clusterproof.plugins.evidence.perf import parse_nccl as nccl_tests

    collector = understood(ran, nccl_tests.read, ran.as_saved)["nccl_tests"]
    return NcclLog({**collector["logs"][0], "gpus": measured.value.get("gpus")})


@collected_by("gpu_bandwidth")
def gpu_bandwidth(node: Node, measured: CollectorData) -> GpuBandwidth:
    """Copies from, to and between the GPUs."""
    from clusterproof.plugins.evidence.perf.gpu_speed import GpuBandwidth

    require_hardware(node, measured, "gpus")
    return GpuBandwidth(measured.value)


@collected_by("gpu_gemm")
def gpu_gemm(node: Node, measured: CollectorData) -> GpuGemm:
    """Matrix products of the GPUs."""
    from clusterproof.plugins.evidence.perf.gpu_speed import GpuGemm

    require_hardware(node, measured, "gpus")
    return GpuGemm(measured.value)


@collected_by("gpu_exact")
def gpu_exact(node: Node, measured: CollectorData) -> GpuExact:
    """Exact products of the GPUs. Raises NotApplicable."""
    from clusterproof.plugins.evidence.exact.facts import GpuExact

    require_hardware(node, measured, "gpus")
    return GpuExact(measured.value)


@collected_by("exact_collective")
def exact_collective(node: Node, measured: CollectorData) -> ExactCollective:
    """Exact collectives of the GPUs. Raises NotApplicable if the node has only one."""
    from clusterproof.plugins.evidence.exact.facts_collective import ExactCollective

    require_hardware(node, measured, "gpus", least=2)
    return ExactCollective(measured.value)


@collected_by("exact_step")
def exact_step(node: Node, measured: CollectorData) -> ExactStep:
    """Training steps of the GPUs. Raises NotApplicable."""
    from clusterproof.plugins.evidence.exact.facts_step import ExactStep

    require_hardware(node, measured, "gpus")
    return ExactStep(measured.value)


@collected_by("cpu_exact")
def cpu_exact(_node: Node, measured: CollectorData) -> CpuExact:
    """Exact products of the cores, and the check of host memory."""
    from clusterproof.plugins.evidence.exact.facts import CpuExact

    return CpuExact(measured.value)


@collected_by("stress_ng", uncaptured="no time is given to stress-ng (--stress-s=S)")
def stress_ng(_node: Node, data: CollectorData) -> StressNg:
    """Cores and memory under stress-ng."""
    from clusterproof.plugins.evidence.perf.stress import StressNg

    return StressNg(data.value)


@collected_by("efa_loopback")
def efa_loopback(node: Node, measured: CollectorData) -> Loopback:
    """Messages through the EFA devices."""
    from clusterproof.plugins.evidence.perf.facts import Loopback

    require_hardware(node, measured, "efa")
    return Loopback(measured.value)


@collected_by("fs_bandwidth", uncaptured="no folder is named to write into (--fs-bandwidth=DIR)")
def fs_bandwidth(node: Node, measured: CollectorData) -> FsBandwidth:
    """A file written and read."""
    from clusterproof.plugins.evidence.perf.facts import FsBandwidth

    return FsBandwidth(measured.value)


def require_hardware(node: Node, measured: CollectorData, what: str, least: int = 1) -> None:
    """Report why there was nothing to load. Raises NotApplicable, or Incomplete if there should have been."""
    why = measured.value.get("none")
    if why is None:
        return
    if _expected(node, what) >= least:
        raise Incomplete(f"{measured.collector}: {str(why)[:200]}; expected {node.expected(what)} to load")
    raise NotApplicable(str(why)[:200])


def require_every_gpu(node: Node, measured: int, given: int | None, what: str = "") -> None:
    """Report that a load left out GPUs that it was given, or that the node should have. Raises Incomplete.

    A job or container that was given only some of the GPUs with a driver has to load only those; `given` is None in
    older recordings.
    """
    due = max(given or 0, 0 if given and given < _bound(node) else _expected(node))
    if measured < due:
        raise Incomplete(f"{what}{measured} of {due} GPUs were measured; expected all of them")


def _bound(node: Node) -> int:
    """How many GPUs on the bus have a driver, as far as it is known."""
    devices = readings(node, "gpus_on_bus")[0].get("gpus_on_bus", ())
    return sum(bool(readings(device, "driver")[0].get("driver")) for device in devices)


def _expected(node: Node, what: str = "gpus") -> int:
    try:
        return node.expected(what)
    except Incomplete:
        return 0


def understood(ran: ProgramRun, read: Callable[[str], Mapping[str, Any]], text: str) -> Mapping[str, Any]:
    """A run's output, read by the reader of captured logs. Raises Incomplete."""
    from clusterproof.plugins.evidence.parsing import CaptureError

    try:
        return read(text)
    except CaptureError as problem:
        raise Incomplete(f"{ran.ended}; not understood: {problem}") from None


def _nccl_tests(logs: Mapping[str, Any]) -> NcclTests:
    """Every captured log of NCCL."""
    from clusterproof.plugins.evidence.perf.facts_logs import NcclTests

    return NcclTests(logs)


nccl_tests = captured_as("nccl_tests", _nccl_tests, "log of nccl-tests or NCCL")


@collected_by()
def pairwise(node: Node) -> PairsOfNode:
    """The measurements of pairs in which the node took part. Raises Incomplete, NotApplicable."""
    if node.between is None:
        why = "nothing was measured between nodes"
        raise Incomplete(why, cause=why)
    return node.between.pairs_of_node(node.name)


def pairs_if_known(node: Node) -> PairsOfNode | None:
    """The same for what is shown beside a finding: None where nothing is known."""
    known: PairsOfNode | None = readings(node, "pairwise")[0].get("pairwise")
    return known
