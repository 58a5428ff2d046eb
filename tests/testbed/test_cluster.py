"""The fake cluster: real sshds that answer as their node would, or misbehave as configured."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator

import pytest

from tests.testbed.cluster import Testbed, testbed
from tests.testbed.needs import needs_cluster, needs_pynvml
from tests.testbed.node import healthy_cpu, healthy_p5, with_nvml, with_pynvml, without_efa
from tests.testbed.talkative import (
    TPUT,
    with_banner,
    with_crlf,
    with_cut_answer,
    with_garbage,
    with_shell_noise,
    with_silence,
)


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    images = {f"gpu{number:03}": healthy_p5(f"gpu{number:03}") for number in (1, 2, 3)}
    images["gpu002"] = without_efa(with_nvml(images["gpu002"], 0, temperature_c=71), "rdmap80s0")
    images = {name: with_pynvml(image) for name, image in images.items()}
    images["noisy"] = with_banner(with_shell_noise(healthy_cpu()), "All use is watched.\n")
    images["crlf"] = with_crlf(healthy_cpu())
    images["garbled"] = with_garbage(healthy_cpu())
    images["cut"] = with_cut_answer(healthy_cpu(), 10)
    images["mute"] = with_silence(healthy_cpu())
    with testbed(images, silent=["gone"], refusing=["closed"]) as running:
        yield running


@needs_cluster
@needs_pynvml
def test_each_node_answers_ssh_with_its_own_name_devices_and_gpus(bed: Testbed) -> None:
    gpu = "import pynvml as p; p.nvmlInit(); h = p.nvmlDeviceGetHandleByIndex(0)"
    gpu = f"{gpu}; print(p.nvmlDeviceGetTemperature(h, 0))"
    command = f"hostname; ls /sys/class/infiniband | wc -l; python3 -c '{gpu}'"
    answers = {name: bed.ssh(name, command).stdout.split() for name in ("gpu001", "gpu002", "gpu003")}
    assert answers == {
        "gpu001": [b"gpu001", b"32", b"33"],
        "gpu002": [b"gpu002", b"31", b"71"],
        "gpu003": [b"gpu003", b"32", b"33"],
    }


@needs_cluster
def test_an_ordinary_user_can_log_in(bed: Testbed) -> None:
    command = ["ssh", "-F", str(bed.ssh_config), "-l", "ubuntu", "gpu001"]
    assert bed.run([*command, "id -un; echo $SHELL; ulimit -l"]).stdout == b"ubuntu\n/bin/sh\nunlimited\n"


@needs_cluster
@pytest.mark.parametrize(
    ("name", "status", "out", "error"),
    [
        ("noisy", 3, b"Welcome. Jobs are to be sent with sbatch.\nanswer\nlogout\n", TPUT.encode()),
        ("crlf", 0, b"answer\r\n", b""),
        ("closed", 255, b"", b"Connection refused"),
    ],
)
def test_a_member_behaves_as_configured(bed: Testbed, name: str, status: int, out: bytes, error: bytes) -> None:
    done = bed.ssh(name, "echo answer; exit 3")
    assert (done.returncode, done.stdout) == (status, out)
    assert error in done.stderr


@needs_cluster
def test_a_banner_comes_before_the_login(bed: Testbed) -> None:
    assert bed.ssh("noisy", "true").stderr.startswith(b"All use is watched.\n")


@needs_cluster
def test_garbage_has_nothing_of_the_answer(bed: Testbed) -> None:
    output = bed.ssh("garbled", "echo answer").stdout
    assert len(output) == 5000
    assert b"answer" not in output


@needs_cluster
def test_an_answer_is_cut_where_configured(bed: Testbed) -> None:
    assert bed.ssh("cut", "echo 0123456789abcdef").stdout == b"0123456789"


@needs_cluster
@pytest.mark.parametrize("name", ["mute", "gone"])
def test_a_member_that_never_answers(bed: Testbed, name: str) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        bed.ssh(name, "echo answer", timeout=1.0)


@needs_cluster
def test_only_who_joins_can_reach_the_nodes(bed: Testbed) -> None:
    address = (bed.address("gpu001"), 22)
    with bed.joined(), socket.create_connection(address, timeout=600) as connection:
        assert connection.recv(4) == b"SSH-"
    links = subprocess.run(["ip", "route", "get", address[0]], capture_output=True, text=True, check=False).stdout
    assert "switch" not in links


@needs_cluster
def test_a_replaced_host_key_is_refused() -> None:
    with testbed({"gpu001": healthy_cpu()}) as bed:
        assert bed.ssh("gpu001", "hostname").stdout == b"gpu001\n"
        bed.replace_host_key("gpu001")
        assert b"Host key verification failed" in bed.ssh("gpu001", "hostname").stderr


@needs_cluster
def test_a_stopped_node_falls_silent() -> None:
    with testbed({"gpu001": healthy_cpu(), "gpu002": healthy_cpu()}) as bed:
        bed.stop("gpu001")
        with pytest.raises(subprocess.TimeoutExpired):
            bed.ssh("gpu001", "hostname", timeout=1.0)
        assert bed.ssh("gpu002", "hostname").stdout == b"gpu002\n"


@needs_cluster
def test_two_clusters_run_side_by_side() -> None:
    with testbed({"one": healthy_cpu()}) as first, testbed({"two": healthy_cpu()}) as second:
        assert first.address("one") == second.address("two")
        assert (first.ssh("one", "hostname").stdout, second.ssh("two", "hostname").stdout) == (
            b"one\n",
            b"two\n",
        )
