"""A node's clock, and settings that differ from another node's or are wrong by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.transport import Answer, Connection, Limits, Program
from clusterproof.plugins.transport.gather import probe_nodes
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import boot, node

PASS, CONCERN, FAIL, INCOMPLETE = Verdict.PASS, Verdict.CONCERN, Verdict.FAIL, Verdict.INCOMPLETE
NOW = 1_763_670_000.0
STOPPED = {"max_error_s": 16.0, "synchronised": False}
KEPT = {"max_error_s": 0.03, "synchronised": True}
SYS = "/proc/sys"
SETTINGS = {
    f"{SYS}/vm/overcommit_memory": "0",
    f"{SYS}/net/core/somaxconn": "4096",
    f"{SYS}/net/ipv4/ip_local_port_range": "32768\t60999",
    f"{SYS}/user/max_user_namespaces": "96365",
    "/sys/devices/system/cpu/isolated": "",
    "/etc/ld.so.preload": "",
}


def of_clock(clock: dict[str, Any], began: float, asked: float = NOW - 4, answered: float = NOW) -> NodeEvidence:
    """A node whose probe began at that time by the node's clock, and took a second."""
    evidence = node("gpu001", kernel={"clock": clock})
    return replace(evidence, asked=asked, answered=answered, probe={"began": began, "seconds": 1.0})


@pytest.mark.parametrize(
    ("evidence", "verdict", "message"),
    [
        (of_clock(KEPT, NOW - 2), PASS, ""),
        (of_clock(KEPT, NOW - 4), PASS, ""),
        (of_clock(KEPT, NOW + 1.9), PASS, ""),
        (of_clock(KEPT, NOW + 299), CONCERN, "300 s ahead of that of the machine which asked; expected at most 3 s"),
        (of_clock(KEPT, NOW - 304), CONCERN, "the clock is 300 s behind that of the machine which asked"),
        (of_clock(KEPT, NOW + 299, 0.0, 0.0), PASS, ""),  # a capture, or an older recording
        (of_clock(STOPPED, NOW - 2), CONCERN, "may be off by 16 s or more, and nobody corrects it"),
        (of_clock(STOPPED, NOW + 299), CONCERN, "the clock is 300 s ahead"),
        (of_clock(STOPPED, NOW + 299), CONCERN, "off by 16 s or more"),
        (
            of_clock({"synchronised": False}, NOW - 2),
            CONCERN,
            "the clock is not synchronised; expected chrony or another NTP client to correct",
        ),
        (of_clock({"error": "ENOSYS", "text": ""}, NOW + 299), INCOMPLETE, "concern: the clock is 300 s ahead"),
    ],
)
def test_a_clock_is_held_against_that_of_the_machine_that_asked(
    evidence: NodeEvidence, verdict: Verdict, message: str
) -> None:
    expect(result_of("host.clock_sync", evidence), verdict, message)


def test_whoever_asks_notes_when_the_question_left_and_the_answer_came(monkeypatch: pytest.MonkeyPatch) -> None:
    class Answering(Connection):
        """Probes that take no time; one node answers after this many seconds, another after an unknown number."""

        def run(self, targets: Any, _program: Program, _limits: Limits, answered: Any) -> None:
            for target, seconds in zip(targets, (7.0, 0.0), strict=True):
                answered(target, Answer(b"", seconds=seconds))

    times = iter([NOW, NOW + 10, NOW + 11])
    monkeypatch.setattr("clusterproof.plugins.transport.gather.time.time", lambda: next(times))
    cluster = Cluster("two", "local", (Target("a"), Target("b")))
    by_node = probe_nodes(cluster, Answering(), Program("", nonce="x"), Limits(), lambda member: member)
    assert {name: (evidence.asked - NOW, evidence.answered - NOW) for name, evidence in by_node.items()} == {
        "a": (3, 10),
        "b": (0, 11),
    }


def of_settings(
    name: str = "gpu001",
    cpus: str = "0-191",
    nofile: int = 1048576,
    pid_max: int = 4194304,
    cores: int = 192,
    **other: Any,
) -> NodeEvidence:
    """A node with the usual settings except these: `vm_overcommit_memory="2"`."""
    settings = {**SETTINGS, **{f"{SYS}/{key.replace('.', '/')}": value for key, value in other.items()}}
    return node(
        name,
        boot=boot(cpus=cores),
        kernel_limits={"settings": settings, "pid_max": pid_max},
        limits={"login": None, "daemons": {"slurmd": {"cpus": cpus, "nofile": nofile}}},
    )


@pytest.mark.parametrize(
    ("own", "peers", "verdict", "message"),
    [
        ({}, [{}], PASS, ""),
        ({}, [], PASS, ""),
        ({"vm.overcommit_memory": "2"}, [], CONCERN, "vm.overcommit_memory 2; expected 0 or 1"),
        ({"net.core.somaxconn": "16"}, [], CONCERN, "net.core.somaxconn 16; expected at least 128"),
        ({"net.ipv4.ip_local_port_range": "32768 32797"}, [], CONCERN, "30 ports in net.ipv4.ip_local_port_range"),
        ({"user.max_user_namespaces": "0"}, [], PASS, ""),  # hardened sites set it on all nodes
        (
            {"user.max_user_namespaces": "0"},
            [{}],
            CONCERN,
            "user.max_user_namespaces differs from node to node (0 on gpu001, more on peer0); expected one",
        ),
        ({"cpus": "0"}, [{}, {}], CONCERN, "CPUs of slurmd 0; expected 0-191 as on 2 of 3 nodes"),
        ({"nofile": 4096}, [{}, {}], CONCERN, "nofile of slurmd 4096; expected 1048576 as on 2 of 3 nodes"),
        ({"pid_max": 32768}, [{}], CONCERN, "kernel.pid_max differs from node to node (32768 on gpu001, 4194304 on"),
        ({"pid_max": 196608}, [{"pid_max": 131072, "cores": 128}], PASS, ""),  # the kernel's default, by CPUs
        ({"pid_max": 32768, "cores": 8}, [{}, {}], PASS, ""),
        ({"pid_max": 196608, "cores": 128}, [{}, {}], CONCERN, "kernel.pid_max 196608; expected 4194304 as on 2 of"),
        ({"cpus": ""}, [{}, {}], PASS, ""),  # from an older recording
        ({"vm.overcommit_memory": {"error": "EIO", "text": ""}, "net.core.somaxconn": "16"}, [], INCOMPLETE,
         "concern: net.core.somaxconn 16"),
    ],
)  # fmt: skip
def test_a_setting_is_named_that_is_wrong_for_anybody_or_unlike_another_nodes(
    own: dict[str, Any], peers: list[dict[str, Any]], verdict: Verdict, message: str
) -> None:
    others = [of_settings(f"peer{number}", **peer) for number, peer in enumerate(peers)]
    expect(result_of("host.kernel_settings", of_settings(**own), *others), verdict, message)


@pytest.mark.parametrize(
    ("tainted", "verdict", "message"),
    [
        ("0", PASS, ""),
        ("12289", PASS, ""),  # proprietary, out of tree, unsigned
        ("16", CONCERN, "tainted by a machine check (M); expected none"),
        ("16544", CONCERN, "tainted by a bad page (B) and an Oops (D) and a soft lockup (L)"),
        ({"error": "EACCES", "text": ""}, INCOMPLETE, "tainted could not be read (EACCES)"),
    ],
)
def test_the_kernel_keeps_what_has_happened_to_it(tainted: Any, verdict: Verdict, message: str) -> None:
    evidence = node("gpu001", kernel_limits={"settings": {f"{SYS}/kernel/tainted": tainted}})
    expect(result_of("host.kernel_taint", evidence), verdict, message)


@pytest.mark.parametrize(
    ("modes", "verdict", "message"),
    [
        ({"/tmp": 0o1777, "/dev/shm": 0o1777}, PASS, ""),
        ({"/tmp": 0o700, "/dev/shm": 0o755}, FAIL, "/tmp has mode 0700, /dev/shm has mode 0755; expected 1777"),
        ({"/tmp": 0o777}, CONCERN, "/tmp has mode 0777; expected 1777"),
        ({"/tmp": 0o777, "/dev/shm": 0o755}, FAIL, "concern: /tmp has mode 0777"),
        ({"/tmp": {"error": "ENOENT", "text": ""}, "/dev/shm": 0o755}, FAIL, "incomplete: /tmp could not be read"),
    ],
)
def test_folders_of_all_users_are_open_to_all(modes: dict[str, Any], verdict: Verdict, message: str) -> None:
    expect(result_of("host.shared_folders", node("gpu001", kernel_limits={"modes": modes})), verdict, message)


def of_thp(name: str, mode: str) -> NodeEvidence:
    """A node with that transparent huge page mode."""
    return node(name, memory={"transparent": mode})


def test_two_nodes_are_compared_and_both_are_named() -> None:
    own, other = of_thp("gpu001", "always madvise [never]"), of_thp("gpu002", "always [madvise] never")
    message = "differs from node to node (never on gpu001, madvise on gpu002); expected one for all nodes"
    expect(result_of("host.thp", own, other), CONCERN, message)
    expect(result_of("host.thp", own, of_thp("gpu002", "always madvise [never]")), PASS, "")
