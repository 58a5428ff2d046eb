"""What AWS is asked about a cluster: collectors like the probe's, but run here, with an account."""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from functools import cache
from pathlib import Path
from typing import Any

from clusterproof.plugins.aws import Account, AwsDenied, AwsError
from clusterproof.plugins.core.cluster import Cluster, is_of_hyperpod
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status

_READS = re.compile(r"^def read_(\w+)\(", re.MULTILINE)
COLLECTOR_S = 120.0  # including throttled calls: a listing of 1,200 nodes is 12 calls

Read = Callable[[Account, Cluster], object]


@cache
def collector_names() -> tuple[str, ...]:
    """The names of all collectors: the functions `read_NAME(account, cluster)` of the modules here."""
    return tuple(sorted(_modules()))


@cache
def _modules() -> Mapping[str, str]:
    """The module of each collector: found by parsing the files, so that listing names imports nothing."""
    paths = sorted(Path(__file__).parent.glob("*.py"))
    return {name: path.stem for path in paths for name in _READS.findall(path.read_text(encoding="utf-8"))}


def ask(account: Account, cluster: Cluster, collectors: Iterable[str], timeout_s: float = COLLECTOR_S) -> NodeEvidence:
    """What AWS reports about a cluster: runs all applicable collectors concurrently; each can fail independently."""
    names = sorted(name for name in collectors if _is_of(name, cluster))
    began = time.monotonic()
    pool = ThreadPoolExecutor(max_workers=max(1, len(names)), thread_name_prefix="aws")
    try:
        futures = {name: pool.submit(_collector, name, account, cluster) for name in names}
        collected: dict[str, Collected] = {}
        for name, answer in futures.items():
            try:
                collected[name] = answer.result(max(0.0, began + timeout_s - time.monotonic()))
            except TooLate:
                collected[name] = Collected(Status.TIMED_OUT, detail=f"no answer within {timeout_s:g} s")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return NodeEvidence(cluster.name, collected, seconds=time.monotonic() - began)


def _is_of(name: str, cluster: Cluster) -> bool:
    """Whether a collector applies to this kind of cluster: `KINDS` in its module lists the kinds, if not all."""
    kinds = getattr(_module(name), "KINDS", ("hyperpod", "ec2"))
    return ("hyperpod" if is_of_hyperpod(cluster) else "ec2") in kinds


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{_modules()[name]}")


def _collector(name: str, account: Account, cluster: Cluster) -> Collected:
    began = time.monotonic()
    read: Read = getattr(_module(name), f"read_{name}")
    try:
        value = _plain(read(account, cluster))
    except AwsDenied as denied:
        return Collected(Status.DENIED, detail=str(denied), seconds=time.monotonic() - began)
    except AwsError as problem:
        return Collected(Status.BROKE, detail=str(problem), seconds=time.monotonic() - began)
    except Exception as crash:  # a failure is this collector's evidence and affects no other
        return Collected(
            Status.BROKE, detail=f"{type(crash).__name__}: {crash}"[:300], seconds=time.monotonic() - began
        )
    return Collected(Status.READ, value, seconds=time.monotonic() - began)


def _plain(data: object) -> Any:
    """As JSON values: times become text."""
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(value) for value in data]
    return data if data is None or isinstance(data, (str, int, float, bool)) else str(data)
