"""The two ends of a pair: neither starts as many programs as the other likes."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from clusterproof.plugins.benchmarks.rdma import exchange


@pytest.mark.parametrize(
    "asked", [[{"program": "ibv_rc_pingpong", "tcp_port": 1, "b": "mlx5_0 port 1"}] * 2, {"b": 1}, 7]
)
def test_an_end_starts_no_more_programs_than_it_has_devices(asked: object, tmp_path: Path) -> None:
    started = tmp_path / "started"
    program = tmp_path / "ibv_rc_pingpong"
    program.write_text(f"#!/bin/sh\necho >>{started}\n")
    program.chmod(0o755)
    port = {"label": "mlx5_0 port 1", "device": "mlx5_0", "port": 1, "fabric": "InfiniBand", "gid": None, "down": ""}
    own = {"host": "n1", "has_devices": True, "ports": [port], "programs": {"ibv_rc_pingpong": str(program)}}
    here, there = socket.socketpair()
    with here, there:
        for message in (asked, []):
            data = json.dumps(message).encode()
            there.sendall(len(data).to_bytes(4, "big") + data)
        there.shutdown(socket.SHUT_WR)
        with pytest.raises(ValueError, match="expected at most one exchange of each device"):
            exchange._come(here, own, {"options": [], "address": "127.0.0.1"})
    assert not started.exists()


@pytest.mark.parametrize(("load", "processors", "seconds"), [(0.5, 192, 15), (192, 192, 15), (15, 2, 30), (3, 2, 22.5)])
def test_an_exchange_has_more_time_on_a_busy_node(
    load: float, processors: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    assert exchange._limit_s() == seconds


@pytest.mark.parametrize(("theirs", "seconds"), [({"limit_s": 25.0}, 25), ({"limit_s": 1e9}, 30), ({}, 20)])
def test_both_ends_of_an_exchange_have_the_longer_time(theirs: dict[str, float], seconds: float) -> None:
    assert exchange._longer({"limit_s": 20.0}, theirs) == seconds
