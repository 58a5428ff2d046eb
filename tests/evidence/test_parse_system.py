"""Command output about Lustre clients, services, limits and the machine, parsed into the probe's collectors."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.host import parse as host
from clusterproof.plugins.evidence.host import parse_system as system
from tests.builders.evaluated import expect
from tests.builders.samples import sample
from tests.captures.captured import output_of
from tests.faults.captured_fault import evaluated

STATES = """\
osc.tesfs-OST0000-osc-ffff9a7c4d1ee000.state=
current_state: FULL
state_history:
 - [ 1777500001, CONNECTING ]
osc.tesfs-OST0001-osc-ffff9a7c4d1ee000.state=
current_state: DISCONN
state_history:
 - [ 1777500002, FULL ]
"""
GREPPED = """\
    target: MGS
    state: FULL
    target: tesfs-OST0001_UUID
    state: DISCONN
       target_version: 2.15.6.1
"""


@pytest.mark.parametrize(
    ("rows", "collected"),
    [
        ("● foo.service  loaded failed failed  Foo\n", {"failed": ["foo.service"]}),
        (
            "  docker.service loaded active running Docker\n",
            {"services": {"docker": {"load": "loaded", "active": "active", "sub": "running"}}},
        ),
    ],
)
def test_rows_that_grep_kept_of_systemctl_s_list_do_not_prove_that_no_other_unit_failed(
    rows: str, collected: dict[str, Any]
) -> None:
    assert output_of(f"u@h:~$ systemctl list-units | grep -E 'failed|docker'\n{rows}") == {"services": collected}


@pytest.mark.parametrize("text", [STATES, GREPPED])
def test_a_client_whose_state_alone_lctl_shows_is_judged(text: str) -> None:
    message = "tesfs-OST0001: osc is DISCONN; expected FULL"
    expect(evaluated({"t": text})["storage.lustre_clients"], Verdict.FAIL, message)


# What runs


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (" 10:14:32 up 12 days,  3:04,  2 users,  load average: 0.08, 0.03, 0.01\n", 12 * 86400 + 3 * 3600 + 4 * 60),
        (" 10:14:32 up 7 min,  0 users,  load average: 0.08, 0.03, 0.01\n", 7 * 60),
        (" 10:14:32 up 1 day, 5 min,  1 user,  load average: 0.08, 0.03, 0.01\n", 86400 + 5 * 60),
    ],
)
def test_uptime_in_its_forms(text: str, seconds: float) -> None:
    assert host.read_uptime(text) == {"boot": {"uptime_s": seconds}}


@pytest.mark.parametrize(
    "text",
    [
        "Sun Nov 29 19:36:36 UTC 2026\n",
        "Sun Nov 29 07:36:36 PM UTC 2026\n",  # en_US
        "Sun Nov 29 07:36:36 PM  UTC 2026\n",
        "Sun 29 Nov 2026 07:36:36 PM UTC\n",  # en_US of glibc 2.27
    ],
)
def test_date_in_its_forms(text: str) -> None:
    assert output_of(text) == {"boot": {"now": 1795980996.0}}


def test_dmidecode_shows_the_instance_type() -> None:
    system_rows = "System Information\n\tManufacturer: Amazon EC2\n\tProduct Name: p5.48xlarge\n"
    text = f"{system_rows}\nBase Board Information\n\tProduct Name: another\n"
    assert host.read_dmidecode(text) == {"platform": {"vendor": "Amazon EC2", "product": "p5.48xlarge"}}


def test_systemctl_status_shows_the_services_that_matter() -> None:
    text = (
        "● slurmd.service - Slurm node daemon\n"
        "     Loaded: loaded (/lib/systemd/system/slurmd.service; enabled; vendor preset: enabled)\n"
        "     Active: failed (Result: exit-code) since Sat\n\n"
        "● cups.service - CUPS\n     Loaded: loaded (/x; enabled)\n     Active: active (running)\n"
    )
    collected: Any = system.read_status(text)
    assert collected["services"]["services"] == {
        "slurmd": {"load": "loaded", "active": "failed", "sub": "Result: exit-code", "enabled": "enabled"}
    }


@pytest.mark.parametrize(
    ("loaded", "enabled"),
    [
        ("/usr/lib/systemd/system/slurmd.service; enabled; vendor pre>", {"enabled": "enabled"}),
        ("/usr/lib/systemd/system/slurmd.service; enab>", {}),
        ("/usr/lib/systemd/syste>", {}),
    ],
)
def test_whether_a_service_is_enabled_is_known_if_a_pager_has_cut_the_line_behind_it(
    loaded: str, enabled: dict[str, str]
) -> None:
    text = f"○ slurmd.service - Slurm node daemon\n     Loaded: loaded ({loaded}\n     Active: inactive (dead)\n"
    assert output_of(text)["services"]["services"]["slurmd"] == {
        "load": "loaded",
        "active": "inactive",
        "sub": "dead",
        **enabled,
    }


@pytest.mark.parametrize(
    ("rows", "failed"),
    [
        ("● foo.service loaded failed failed Foo\n\n1 loaded units listed.\n", ["foo.service"]),
        ("● docker.socket loaded failed failed Docker\n\n1 loaded units listed.\n", ["docker.socket"]),
        ("\n0 loaded units listed.\n", []),
        (
            "● nvidia-fabric…ger.service loaded failed failed NVIDIA\n\n1 loaded units listed.\n",
            ["nvidia-fabric…ger.service"],
        ),
        (f"● foo.service{' ' * 150}loaded failed failed Foo\n\n1 loaded units listed.\n", ["foo.service"]),
    ],
)
def test_systemctl_failed_lists_what_failed(rows: str, failed: list[str]) -> None:
    text = f"  UNIT LOAD ACTIVE SUB DESCRIPTION\n{rows}"
    collected: Any = system.read_list(text)
    assert system.is_list(text)
    assert collected["services"]["failed"] == failed


@pytest.mark.parametrize("failed", [[], ["bar.service"]])
def test_that_no_unit_has_failed_is_not_known_from_a_list_with_units_that_are_not_understood(failed: list[str]) -> None:
    rows = "".join(f"● {unit} loaded failed failed Bar\n" for unit in failed)
    count = len(failed) + 1
    text = f"  UNIT LOAD ACTIVE SUB DESCRIPTION\nâ— foo.service loaded failed failed Foo\n{rows}\n"
    values, problems = read_text(f"{text}{count} loaded units listed.\n")
    assert problems == [f"systemctl: 1 of {count} units are not understood"]
    assert values["services"] == ({"failed": failed} if failed else {})


def test_ulimit_and_proc_limits_show_the_limits_of_a_login_in_bytes() -> None:
    ulimit: Any = system.read_ulimit("max locked memory           (kbytes, -l) 65536\nopen files  (-n) 1024\n")
    limits: Any = system.read_proc_limits(sample("host/insights-proc_limits-L11.txt").text)
    assert ulimit["limits"]["login"] == {"memlock": 65536 * 1024, "nofile": 1024}
    assert limits["limits"]["login"]["memlock"] == 65536


ULIMIT = "max locked memory       (kbytes, -l) {}\nopen files                      (-n) {}\n"
GREPPED_LIMIT = "Max locked memory         {}                {}                bytes\n"
ACTIVE = "hca_id: mlx5_0\n\tvendor_id: 0x02c9\n\t\tport:\t1\n\t\t\tstate: PORT_ACTIVE (4)\n"


@pytest.mark.parametrize("limits", [ULIMIT.format(64, 1024), GREPPED_LIMIT.format(65536, 65536)])
def test_a_low_limit_of_a_login_fails_though_nothing_shows_those_of_daemons(limits: str) -> None:
    results = evaluated({"limits": limits, "ibv": ACTIVE})
    expect(results["network.memlock"], Verdict.FAIL, "memlock is 64 KiB for a login; expected")


SYSCTL = (
    "vm.overcommit_memory = 2\nnet.core.somaxconn = 16\nkernel.pid_max = 4096\nfs.file-max = 2000\n"
    "net.ipv4.ip_local_port_range = 60000\t60030\nkernel.threads-max = 900\nuser.max_user_namespaces = 0\n"
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("host.kernel_settings", "vm.overcommit_memory 2; expected 0 or 1"),
        ("host.kernel_settings", "net.core.somaxconn 16; expected at least"),
        ("host.kernel_settings", "31 ports in net.ipv4.ip_local_port_range; expected at least"),
        ("host.open_files", "fs.file-max 2000; expected at least"),
        ("host.process_ids", "kernel.pid_max 4096; expected at least"),
    ],
)
def test_settings_that_sysctl_shows_are_evaluated_as_those_of_a_node(check: str, message: str) -> None:
    result = evaluated({"sysctl": SYSCTL})[check]
    assert f"concern: {message}" in result.message
    assert "is not in what was captured" in result.message


def test_a_high_limit_of_a_login_proves_nothing_of_the_daemons_that_start_jobs() -> None:
    results = evaluated({"limits": ULIMIT.format("unlimited", 1048576), "ibv": ACTIVE})
    expect(results["network.memlock"], Verdict.INCOMPLETE, "memlock is not in what was captured")
    assert results["host.ulimits"].verdict is Verdict.INCOMPLETE
