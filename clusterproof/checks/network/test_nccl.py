"""NCCL's own logs, captured from nccl-tests and from jobs that ran with NCCL_DEBUG=INFO."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.verdict import concern, concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import known, readings
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.perf.facts_logs import NcclLog

pytestmark = [mark.network, mark.preflight]

SOCKET = "Socket"
MAX_SIZES = 8  # named in one message
FAILURE = re.compile(r"Test (CUDA |NCCL )?failure|FAILED")  # what nccl-tests say of themselves


@mark.hyperpod_nccl("13")
@evidence("NCCL_DEBUG=INFO all_reduce_perf -b 8 -e 1G -f 2 -g 8 | grep -E 'Selected provider|Using network'")
def test_nccl_transport(node: Node) -> None:
    """NCCL transport.

    With NCCL_DEBUG=INFO the log shows which libfabric provider NCCL uses, and with how many devices. If the plugin or
    the provider is missing, NCCL falls back to TCP without an error and is many times slower.

    Remedy (fix configuration): Put the aws-ofi-nccl plugin on the library path of the job's container, and unset
    NCCL_NET_PLUGIN=none and FI_PROVIDER=tcp. If devices are missing, request all of them in the job's resources.
    """
    logs = node.nccl_tests.logs
    networks, providers = used(logs, "networks"), used(logs, "providers")
    if not networks and not providers:
        lines = sum(log.network.info_lines for log in logs)
        warning = next(filter(None, map(_warning, logs)), "")
        incomplete(
            f"{lines} NCCL log lines, but none says which network it used{warning}; expected a run with NCCL_DEBUG=INFO"
        )
    slow = others_than_efa(networks, providers)
    if node.expected("efa") == 0:
        require_rdma(node, networks)
    fail_if(slow, f"NCCL used {', '.join(slow)}; expected EFA")
    nics = used(logs, "nics")
    if nics or not slow:
        require_every_device(node, nics)
    if slow:
        return
    if not any("efa" in provider for provider in providers):
        incomplete("NCCL used libfabric, but the log does not name the provider; expected its line `Selected provider`")


def _warning(log: NcclLog) -> str:
    warnings = known(lambda: log.network.warnings, ())
    return f" (NCCL WARN {warnings[0]})" if warnings else ""


def used(logs: Iterable[NcclLog], what: str) -> list[Any]:
    """The `networks`, `providers` or `nics` that NCCL logged as used."""
    logged: list[Any] = []
    for log in logs:
        with part:
            logged += getattr(log.network, what)
    return logged


def others_than_efa(networks: Iterable[str], providers: Iterable[str]) -> list[str]:
    """Networks and providers other than EFA that moved data: `network Socket`, `provider tcp;ofi_rxm`."""
    others = [f"network {name}" for name in networks if not _is_libfabric(name)]
    others += [f"provider {name}" for name in providers if "efa" not in name.split(";")]
    return list(dict.fromkeys(others))


def _is_libfabric(name: str) -> bool:
    return "libfabric" in name.lower() or "ofi" in name.lower()


def require_rdma(node: Node, networks: list[str]) -> None:
    """Evaluate a node without EFA: TCP is wrong only if there is a faster network."""
    if SOCKET in networks and node.ib_devices:
        concern(f"NCCL used the network {SOCKET}; expected InfiniBand or RoCE, which this node has")
    not_applicable(f"{node.type_name or 'this node'} has no EFA")


def require_every_device(node: Node, counts: list[int]) -> None:
    """Compare the devices that NCCL found with those that the node has."""
    with part:
        if not counts:
            incomplete("NCCL used EFA, but the log does not say with how many devices; expected a line `found N nics`")
        shown, _ = readings(node, "efa_devices")
        devices = len(shown.get("efa_devices", ())) or node.expected("efa")
        concern_if(min(counts) < devices, f"NCCL used EFA with {min(counts)} of {devices} devices; expected all")


@mark.hyperpod_nccl
@evidence("all_reduce_perf -b 8 -e 1G -f 2 -g 8 -c 1 | grep -E 'wrong|Out of bounds'")
def test_nccl_correct(node: Node) -> None:
    """NCCL correctness.

    nccl-tests verify every result unless they run with -c 0. A wrong sum in a collective is a wrong gradient in
    training, and nothing else shows it. Where several runs each have a rank 0 at once, each was
    alone, and nothing is known of what goes between them.

    Remedy (investigate): Drain the node. Run nccl-tests again on this node alone, then with its neighbours, to find the
    faulty GPU or link.
    """
    logs = [log for log in node.nccl_tests.logs if log.is_of_nccl_tests]
    if not logs:
        not_applicable("no log of nccl-tests was captured")
    for log in logs:
        for rule in (all_right, whole, all_checked, together):
            with part:
                rule(log)


def all_right(log: NcclLog) -> None:
    """Fail if values are wrong, or a complete run reports that it failed."""
    with part:
        wrong = [f"{row.wrong} wrong values at {row.label}" for row in log.rows if row.wrong]
        more = f", and at {len(wrong) - MAX_SIZES} more sizes" if len(wrong) > MAX_SIZES else ""
        assert not wrong, f"{', '.join(wrong[:MAX_SIZES])}{more}; expected 0"
    count, word = log.out_of_bounds, known(lambda: log.out_of_bounds_word, "OK")
    fail_if(count or word not in ("", "OK"), f"out of bounds values: {count or 0} {word}; expected 0 OK")
    failed = [problem for problem in log.problems if FAILURE.search(problem) and word]
    fail_if(failed, f"nccl-tests ended with {' and '.join(failed)}; expected no failure")


def whole(log: NcclLog) -> None:
    """Raise Incomplete if the log, or the run, ended too early."""
    if log.out_of_bounds is None and known(lambda: log.out_of_bounds_word, ""):
        incomplete(f"a run in the log has no line `Out of bounds values`{why(log)}; expected one of each run")
    if log.out_of_bounds is None:
        rows = readings(log, "rows")[0].get("rows")
        last = f" after {rows[-1].label}" if rows else ""
        incomplete(f"the log ends{last}{why(log)}; expected its line `Out of bounds values`")
    if log.exit:
        incomplete(f"no value is wrong, but the run exited with status {log.exit}; expected 0")


def together(log: NcclLog) -> None:
    """Raise Incomplete if several ran at once, each by itself: as nccl-tests without MPI, however they are started."""
    if apart := known(lambda: log.apart, None):
        where = within(fold(sorted(set(apart))), 200)
        incomplete(
            f"{len(apart)} runs at once, on {where}, each with a rank 0: nothing went between them; "
            "expected nccl-tests built with MPI=1"
        )


def why(log: NcclLog) -> str:
    """The first error in a log, as the end of a sentence; empty if there is none."""
    problems = known(lambda: log.problems, ())
    return f": {problems[0]}" if problems else ""


def all_checked(log: NcclLog) -> None:
    """Raise Incomplete if sizes are missing, or were not checked."""
    if not log.rows:
        name = known(lambda: log.collective, "")
        incomplete(f"{name or 'nccl-tests'} measured nothing{why(log)}; expected a row for each size")
    unchecked = [row for row in log.rows if not (row.out_of_place.is_checked or row.in_place.is_checked)]
    if unchecked:
        incomplete(f"{len(unchecked)} of {len(log.rows)} sizes were not checked; expected a run with -c 1")
