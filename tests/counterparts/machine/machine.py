"""A whole running machine: qemu with software emulation, reached by ssh, with faults injected through its monitor."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterproof.plugins.core.result import Result
from clusterproof.reports.results import read_results
from tests.counterparts import installed
from tests.transport.loopback import free_port

NAME = "machine"
NODE = "node001"
ROOT = Path(__file__).parents[3]
DISKS = 3
BOOT_S = 1200  # on a busy machine; 40 s on an idle one
ANSWER_S = 900
ATTEMPTS = 5
TOO_BUSY = ("the node is too busy", "the kernel log was not read to its end", "kernel_log: did not answer in time")
KERNEL = "root=/dev/vda rw console=ttyS0 pcie_ports=native mitigations=off panic=-1 log_buf_len=4M quiet"
CONFIG = """Host *
  User root
  HostName 127.0.0.1
  Port {port}
  HostKeyAlias {node}
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile none
"""


@dataclass(frozen=True)
class Machine:
    """A running machine; `home` has the ssh configuration to reach it."""

    home: Path
    monitor: Path

    def shell(self, script: str, timeout_s: float = ANSWER_S) -> subprocess.CompletedProcess[str]:
        """Run a script on it, as root."""
        command = ["ssh", "-F", str(self.home / ".ssh" / "config"), "-o", "ConnectTimeout=30", NODE, "sh -e"]
        return subprocess.run(command, input=script, capture_output=True, text=True, timeout=timeout_s)

    def befall(self, *events: str) -> None:
        """Send these commands to the monitor, line by line."""
        with socket.socket(socket.AF_UNIX) as spoken:
            spoken.connect(str(self.monitor))
            spoken.settimeout(ANSWER_S)
            _until_prompt(spoken)
            for event in events:
                spoken.sendall(f"{event}\n".encode())
                answer = _until_prompt(spoken)
                assert "rror" not in answer.replace(event, ""), answer

    def evaluated(self, *options: str) -> dict[str, Result]:
        """The verdict of every check of `pytest --cluster ssh:…`, as typed by a user; repeated if it was too busy."""
        for _ in range(ATTEMPTS):
            results = self._evaluated(options)
            if not any(phrase in result.message for result in results.values() for phrase in TOO_BUSY):
                break
        return results

    def _evaluated(self, options: Sequence[str]) -> dict[str, Result]:
        results = self.home / f"results-{time.monotonic_ns()}.jsonl"
        recording = results.with_suffix("")
        arguments = [
            "--cluster",
            f"ssh:{NODE}",
            "--expect",
            "gpus=0",
            "--probe-timeout",
            "90",
            "--connect-timeout",
            "60",
        ]
        arguments += ["--results", str(results), "--record", str(recording), "--no-report", "-q", "-n", "0"]
        arguments += options
        subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=ROOT,
            env={**os.environ, "HOME": str(self.home)},
            capture_output=True,
            timeout=ANSWER_S,
        )
        return {result.check: result for result in read_results(results) if result.node == NODE}

    def collected(self, collector: str) -> Mapping[str, Any]:
        """A collector's last result."""
        recording = max(self.home.glob("results-*/nodes"), key=lambda folder: folder.stat().st_mtime_ns)
        record = json.loads((recording / f"{NODE}.json").read_text())["collectors"][collector]
        value: Mapping[str, Any] = record["value"]
        return value


def _until_prompt(spoken: socket.socket) -> str:
    text = ""
    while not text.endswith("(qemu) "):
        text += spoken.recv(65536).decode()
    return text


@contextlib.contextmanager
def booted(home: Path) -> Iterator[Machine]:
    """Boot the machine, wait for ssh, and stop it at the end."""
    folder, port = installed.folder(NAME), free_port()
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text(CONFIG.format(port=port, node=NODE, folder=folder))
    machine = Machine(home, home / "monitor")
    with (home / "said").open("wb") as log:
        running = subprocess.Popen(_qemu(folder, home, port), stdout=log, stderr=log, start_new_session=True)
    try:
        _await(machine, running, home)
        yield machine
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def _await(machine: Machine, running: subprocess.Popen[bytes], home: Path) -> None:
    """Wait until systemd has started everything."""
    until = time.monotonic() + BOOT_S
    while time.monotonic() < until:
        assert running.poll() is None, (home / "said").read_text()
        with contextlib.suppress(subprocess.TimeoutExpired):
            if machine.shell("systemctl is-system-running --wait || :").returncode == 0:
                return
        time.sleep(2)
    raise AssertionError((home / "console").read_text(errors="replace")[-4000:])


def _qemu(folder: Path, home: Path, port: int) -> list[str]:
    """Two sockets with their own memory, PCIe slots with NVMe disks, one below a switch, and a network adapter."""
    command = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-machine", "q35", "-m", "1536", "-nodefaults"]
    command += ["-smp", "2,sockets=2", "-display", "none", "-no-reboot"]
    command += ["-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"]  # otherwise the slots are found empty
    for number in range(2):
        command += ["-object", f"memory-backend-ram,id=memory{number},size=768M"]
        command += ["-numa", f"node,nodeid={number},cpus={number},memdev=memory{number}"]
    command += ["-kernel", str(folder / "vmlinuz"), "-initrd", str(folder / "initrd"), "-append", KERNEL]
    command += ["-drive", f"if=none,id=root,file={folder / 'disk'},format=raw,snapshot=on"]
    command += ["-device", "virtio-blk-pci,drive=root", "-device", "virtio-rng-pci"]
    for number in range(DISKS + 1):
        command += ["-device", f"pcie-root-port,id=port{number},chassis={number + 1},slot={number + 1}"]
    command += ["-device", f"x3130-upstream,id=switch,bus=port{DISKS}"]
    command += ["-device", f"xio3130-downstream,id=below,bus=switch,chassis={DISKS + 2},slot={DISKS + 2}"]
    for number in range(DISKS):
        bus = "below" if number == DISKS - 1 else f"port{number}"
        disk = home / f"disk{number}"
        disk.write_bytes(b"")
        os.truncate(disk, 256 * 1024 * 1024)
        command += ["-drive", f"if=none,id=drive{number},file={disk},format=raw"]
        command += ["-device", f"nvme,id=nvme{number},serial=serial{number},drive=drive{number},bus={bus}"]
    command += ["-netdev", f"user,id=user,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"]
    command += ["-device", "virtio-net-pci,netdev=user"]
    command += ["-netdev", "hubport,id=hub,hubid=1", "-device", f"e1000e,id=adapter,netdev=hub,bus=port{DISKS - 1}"]
    return [*command, "-serial", f"file:{home / 'console'}", "-monitor", f"unix:{home / 'monitor'},server,nowait"]
