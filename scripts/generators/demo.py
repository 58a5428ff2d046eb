"""Records the demo cluster anew, and draws its page: `scripts/generate demo`, as root, over real ssh."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from clusterproof.reports.document.demo import PICTURES
from clusterproof.reports.folder import PAGE
from scripts.generators.demo_pictures import write_pictures
from tests.faults import BY_NAME
from tests.faults.kernel_log import XID
from tests.testbed.browser import browser
from tests.testbed.cluster import testbed
from tests.testbed.image import NodeImage
from tests.testbed.node import healthy_p5, with_kernel_line, with_memlock, with_nvml

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "fixtures" / "demo"
PICTURE = ROOT / "docs" / "report.png"
PICTURE_PX = (1280, 860)
NAMES = [f"gpu{number:03d}" for number in range(1, 17)]
UNREACHABLE = "gpu005"
LIMITED = NAMES[7:]  # the nodes that were set up last, and set up wrong: configuration, not hardware
FAULTS = {
    "gpu002": "an NVLink that is down",
    "gpu006": "a GPU that is lost",
    "gpu010": "a driver that does not answer",
    "gpu012": "a file server that does not answer",
    "gpu015": "an application's Xid that repeats",
}


def image(name: str) -> NodeImage:
    """A node of the demo cluster."""
    node = healthy_p5(name)
    if name in FAULTS:
        node = BY_NAME[FAULTS[name]].put(node)
    if name == "gpu003":
        node = with_nvml(with_nvml(node, gpu=1, ecc_uncorrected_dram=14), gpu=5, ecc_uncorrected_dram=14)
        node = with_kernel_line(node, XID.format(bus="64", text="48, pid=3122, name=python3, Double Bit ECC Error"))
    if name in ("gpu007", "gpu008"):
        node = with_nvml(node, gpu=2, ecc_uncorrected_sram=2)
    return with_memlock(node, "8388608", daemon="slurmd") if name in LIMITED else node


def record() -> None:
    """Probe the nodes over ssh and keep what they answered."""
    shutil.rmtree(DEMO, ignore_errors=True)
    reached = [name for name in NAMES if name != UNREACHABLE]
    with testbed({name: image(name) for name in reached}, refusing=[UNREACHABLE]) as bed:
        options = ["--cluster", "ssh:gpu[001-016]", "--record", str(DEMO), "--no-report", "-p", "no:cacheprovider"]
        ran = bed.run([sys.executable, "-m", "pytest", *options], timeout=120)
        print(ran.stdout.decode(), ran.stderr.decode())
    data = json.loads((DEMO / "cluster.json").read_text())
    data["cluster"] = "demo"
    (DEMO / "cluster.json").write_text(json.dumps(data, indent=1) + "\n")
    write_pictures(PICTURES, NAMES)


def draw() -> None:
    """A picture of the top of the demo's page."""
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        options = ["--cluster", "demo", "--report", folder, "-q", "-p", "no:cacheprovider"]
        subprocess.run([sys.executable, "-m", "pytest", *options], cwd=ROOT, capture_output=True, check=False)
        chromium.driver.set_window_size(*PICTURE_PX)
        chromium.open(Path(folder) / PAGE)
        chromium.driver.save_screenshot(str(PICTURE))


if __name__ == "__main__":
    record()
    draw()
