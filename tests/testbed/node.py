"""A fake node on this machine: enter it, run programs in it, leave nothing behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.testbed.archive import archive, beneath
from tests.testbed.faults import (
    with_file,
    with_frozen,
    with_full_root,
    with_hung_mount,
    with_kernel_line,
    with_line,
    with_memlock,
    with_nvml,
    with_pynvml,
    with_service,
    with_slow_mount,
    with_stuck_nvml,
    with_tmpfs,
    with_tool,
    with_whole_machine,
    without_driver,
    without_efa,
    without_file,
    without_libfabric_domain,
    without_module,
    without_pci,
    without_tmpfs,
)
from tests.testbed.healthy import healthy_cpu, healthy_p5
from tests.testbed.image import NodeImage

__all__ = [
    "BootError",
    "Node",
    "NodeImage",
    "boot",
    "entered",
    "healthy_cpu",
    "healthy_p5",
    "with_file",
    "with_frozen",
    "with_full_root",
    "with_hung_mount",
    "with_kernel_line",
    "with_line",
    "with_memlock",
    "with_nvml",
    "with_pynvml",
    "with_service",
    "with_slow_mount",
    "with_stuck_nvml",
    "with_tmpfs",
    "with_tool",
    "with_whole_machine",
    "without_driver",
    "without_efa",
    "without_file",
    "without_libfabric_domain",
    "without_module",
    "without_pci",
    "without_tmpfs",
]

BOOT = Path(__file__).with_name("boot.sh")
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
FITHAW = 0xC0045878  # linux/fs.h: thaw a frozen file system
LEAVE_S = 10.0  # for the node to end by itself; what remains then is killed
BURIED_S = 600.0  # for killed processes to end, however busy the machine
KILL_S = 0.5  # a process stuck in the kernel does not die before the node is left


class BootError(Exception):
    """A node did not come up; the text is its boot script's output."""


@dataclass(slots=True)
class Node:
    """A running node; `pid` is its process 1 and `root` its root folder, both seen from outside."""

    name: str
    image: NodeImage
    pid: int
    _holder: subprocess.Popen[bytes]
    _lifeline: int  # the node ends when this is closed, including by this process's death
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _on: bool = True

    @property
    def root(self) -> Path:
        return Path(f"/proc/{self.pid}/root")

    def written(self) -> set[str]:
        """Every file that is not of the base system or was changed: path, size in bytes and modification time."""
        enter = [system_program("nsenter"), "-t", str(self.pid), "-m", "--"]
        upper = ["find", "/mnt/upper", "-type", "f", "-printf", "/%P %s %T@\\n"]
        return set(subprocess.run([*enter, *upper], capture_output=True, text=True, check=True).stdout.splitlines())

    def command(self, argv: Sequence[str], *, user: int = 0) -> list[str]:
        """The command line that runs `argv` inside."""
        enter = [system_program("nsenter"), "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w"]
        if user:
            enter += [f"--setgid={user}", f"--setuid={user}"]
        return [*enter, "--", "setsid", *argv]

    def start(
        self,
        argv: Sequence[str],
        *,
        user: int = 0,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[bytes] | None = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = subprocess.DEVNULL,
        stderr: int | IO[bytes] | None = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Start a program inside; it ends with the node or by `kill`."""
        process = subprocess.Popen(
            self.command(argv, user=user),
            env=ENVIRONMENT | dict(env or {}),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a program that `start` started, with its process group.

        nsenter itself must survive: only it can reap the program, and an unreaped process keeps the node from ending.
        """
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                os.killpg(int(child), signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_S)

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",  # noqa: A002 - subprocess's own word for it
        timeout: float = 600.0,
        user: int = 0,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program inside and wait; raises TimeoutExpired when its time is up and it has been killed.

        Does not wait for processes that the program started and left behind.
        """
        pipe = subprocess.PIPE
        process = self.start(argv, user=user, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            self.kill(process)
            raise
        finally:
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def power_off(self) -> None:
        """End everything inside, including mounts. Calling it twice is fine."""
        if not self._on:
            return
        self._on = False
        for path in self.image.frozen:
            self._thaw(path)
        for process in self._started:  # nsenter stops itself along with its program, and then reaps nothing
            process.send_signal(signal.SIGCONT)
        os.close(self._lifeline)
        try:
            self._holder.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            os.kill(self.pid, signal.SIGKILL)
            self._holder.wait(BURIED_S)
        for process in self._started:
            process.wait(BURIED_S)

    def _thaw(self, path: str) -> None:
        """Thaw file systems before waiting for anything (the boot script does it again)."""
        with contextlib.suppress(OSError):
            folder = os.open(f"{self.root}{path}", os.O_RDONLY)
            try:
                fcntl.ioctl(folder, FITHAW, 0)
            finally:
                os.close(folder)


def boot(image: NodeImage, name: str = "node001", *, shares_network: bool = False) -> Node:
    """Start a node that the caller powers off. It has its own network with only loopback, unless it shares ours."""
    packed = archive(image)
    lifeline_end, lifeline = os.pipe()
    spaces = ["--mount", "--uts", "--ipc", "--pid", "--cgroup", "--fork", *([] if shares_network else ["--net"])]
    hung = [f"{path}={kind}" for path, kind in image.hung.items()]
    lists = [" ".join(image.frozen), " ".join(hung), " ".join(image.daemons)]
    command = [name, str(lifeline_end), *lists, str(image.root_percent), str(beneath(image))]
    try:
        holder = subprocess.Popen(
            [system_program("unshare"), *spaces, "/bin/sh", str(BOOT), *command],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[lifeline_end],
            start_new_session=True,
        )
    finally:
        os.close(lifeline_end)
    assert holder.stdin
    assert holder.stdout
    with contextlib.suppress(BrokenPipeError), holder.stdin:
        holder.stdin.write(packed)
    output = b""
    with holder.stdout:
        for line in holder.stdout:
            if line.startswith(b"ready "):
                return Node(name, image, int(line.split()[1]), holder, lifeline)
            output += line
    os.close(lifeline)
    holder.wait()
    raise BootError(f"node {name} did not come up: {output.decode(errors='replace').strip()}")


@contextlib.contextmanager
def entered(image: NodeImage, name: str = "node001", *, shares_network: bool = False) -> Iterator[Node]:
    """Run a node for the block."""
    node = boot(image, name, shares_network=shares_network)
    try:
        yield node
    finally:
        node.power_off()


def system_program(program: str) -> str:
    """The path of a program of this machine, even if the caller's PATH lacks the sbin folders."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin")
    if not path:
        raise FileNotFoundError(f"{program} is not installed (Debian: util-linux, iproute2)")
    return path
