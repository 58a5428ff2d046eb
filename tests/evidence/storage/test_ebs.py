"""A volume's Amazon log page: requested like the real nvme-cli, with the command laid out as in Linux's headers."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.reading import Absent, Denied, Node
from clusterproof.plugins.core.evidence import Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.storage import collect_ebs as ebs
from tests.builders.evaluated import results
from tests.builders.probed import PATIENT, probe_node, value
from tests.testbed import ioctls
from tests.testbed.image import Device
from tests.testbed.needs import needs_gcc, needs_nodes, needs_nvme_cli
from tests.testbed.node import entered, healthy_p5, with_file, with_whole_machine

MODEL = "Amazon Elastic Block Store              "
NOBODY = 65534
PAGE = f"{ioctls.PAGES}/nvme0"
HEADER = """#include <stddef.h>
#include <stdio.h>
#include <linux/ioctl.h>
#include <linux/nvme_ioctl.h>
int main(void)
{
    printf("%lu %zu %zu %zu %zu %zu\\n", (unsigned long)NVME_IOCTL_ADMIN_CMD, sizeof(struct nvme_admin_cmd),
           offsetof(struct nvme_admin_cmd, nsid), offsetof(struct nvme_admin_cmd, addr),
           offsetof(struct nvme_admin_cmd, data_len), offsetof(struct nvme_admin_cmd, cdw10));
    return 0;
}
"""


def controller(root: Path, *names: str, model: str = MODEL) -> Node:
    """A host root with these controllers."""
    for name in names:
        folder = root / "sys/class/nvme" / name
        folder.mkdir(parents=True)
        (folder / "model").write_text(f"{model}\n")
        (folder / "serial").write_text("vol0546d3c3b0af0bf6d\n")
    return Node(str(root))


def test_a_volume_reports_how_long_each_limit_held_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ebs, "log_page", lambda _path, _page: ioctls.ebs_page(1, 2, 3, 4))
    assert ebs.read(controller(tmp_path, "nvme0")) == {
        "volumes": [
            {
                "name": "nvme0",
                "serial": "vol0546d3c3b0af0bf6d",
                "volume_iops_us": 1,
                "volume_throughput_us": 2,
                "instance_iops_us": 3,
                "instance_throughput_us": 4,
            }
        ],
    }


@needs_nodes
@needs_nvme_cli
def test_the_real_nvme_cli_is_answered_with_the_same_page() -> None:
    page = ioctls.ebs_page(1_204_331, 5, 2**64 - 1, 7)
    command = ["nvme", "get-log", "/dev/nvme0", "--namespace-id=1", "--log-id=0xd0", "--log-len=4096", "--raw-binary"]
    with entered(with_file(with_whole_machine(healthy_p5()), PAGE, page)) as node:
        shown = node.run(command)
        (volume,) = probe_node(node, ["ebs"], PATIENT).collectors["ebs"].value["volumes"]
    assert shown.stdout == page, shown.stderr
    assert [volume[name] for name in ebs.EXCEEDED_US] == [1_204_331, 5, 2**64 - 1, 7]


@needs_gcc
def test_a_command_is_laid_out_as_linux_has_it(tmp_path: Path) -> None:
    (tmp_path / "header.c").write_text(HEADER)
    subprocess.run(["gcc", "-o", tmp_path / "header", tmp_path / "header.c"], check=True)
    output = subprocess.run([tmp_path / "header"], capture_output=True, text=True, check=True).stdout
    request, size, nsid, addr, data_len, cdw10 = map(int, output.split())
    marked = ebs.COMMAND.pack(0, 0, 0, 0xA1, 0, 0, 0, 0xA2, 0, 0xA3, 0xA4, *[0] * 7)
    assert (ebs.ADMIN_COMMAND, ebs.COMMAND.size) == (request, size)
    assert [marked[place] for place in (nsid, addr, data_len, cdw10)] == [0xA1, 0xA2, 0xA3, 0xA4]


@needs_nodes
def test_only_root_may_read_the_log_page() -> None:
    with entered(healthy_p5()) as node:
        collector = probe_node(node, ["ebs"], PATIENT, user=NOBODY).collectors["ebs"]
    assert (collector.status, collector.detail) == (Status.DENIED, "/dev/nvme0: Permission denied")


@needs_nodes
def test_a_volume_that_may_not_be_read_hides_no_other() -> None:
    image = healthy_p5()
    for name in ("model", "serial"):
        image = with_file(image, f"/sys/class/nvme/nvme9/{name}", f"{MODEL if name == 'model' else 'vol9'}\n")
    for path, content in ioctls.ebs_volume("nvme9", ioctls.ebs_page(10**13, 0, 0, 0)).items():
        image = with_file(image, path, Device(1, 3, 0o666) if path == "/dev/nvme9" else content)
    with entered(image) as node:
        evidence = probe_node(node, ["ebs", "boot"], PATIENT, user=NOBODY)
    result = results(evidence)["storage.ebs_limits"]
    assert [finding.message.split(" for ")[0] for finding in result.findings if finding.verdict is Verdict.CONCERN] == [
        "nvme9 (vol-9): above the volume's IOPS"
    ]
    assert "volume_iops_us was not read (Denied: /dev/nvme0: Permission denied)" in str(result)


def test_what_linux_refuses_of_the_command_is_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str, _page: int) -> bytes:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

    monkeypatch.setattr(ebs, "log_page", refused)
    with pytest.raises(Denied, match="/dev/nvme0: Operation not permitted"):
        ebs.read(controller(tmp_path, "nvme0"))


def test_a_file_that_is_no_controller_is_an_error_in_place_of_each_value(tmp_path: Path) -> None:
    node = controller(tmp_path, "nvme0", "nvme1")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvme0").touch()
    report: Any = ebs.read(node)
    errors = [{volume[name]["error"] for name in ebs.EXCEEDED_US} for volume in report["volumes"]]
    assert errors == [{"ENOTTY"}, {"ENOENT"}]


@needs_nodes
def test_a_short_page_or_none_is_an_error_in_place_of_each_value() -> None:
    report = value(with_file(healthy_p5(), PAGE, b""), "ebs")
    assert {report["volumes"][0][name]["error"] for name in ebs.EXCEEDED_US} == {"ENOTSUP"}


def test_disks_of_the_machine_itself_are_not_asked(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no volume of EBS"):
        ebs.read(controller(tmp_path, "nvme1", model="Amazon EC2 NVMe Instance Storage"))


def test_every_one_of_very_many_volumes_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ebs, "log_page", lambda _path, _page: ioctls.ebs_page())
    report: Any = ebs.read(controller(tmp_path, *(f"nvme{number}" for number in range(128))))
    assert len(report["volumes"]) == 128
