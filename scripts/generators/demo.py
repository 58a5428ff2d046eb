"""Records the demo cluster again and takes screenshots of its page: `scripts/generate demo`, as root, over real ssh."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from base64 import b64decode
from pathlib import Path

from clusterproof.reports.document.demo import PICTURES
from clusterproof.reports.run_folder import PAGE
from scripts.generators.demo_pictures import write_pictures
from tests.faults import BY_NAME
from tests.faults.kernel_log import XID
from tests.testbed.browser import Browser, browser
from tests.testbed.cluster import testbed
from tests.testbed.image import NodeImage
from tests.testbed.node import healthy_p5, with_kernel_line, with_memlock, with_nvml

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "fixtures" / "demo"
DOCS = ROOT / "docs"
WIDTH_PX, TOP_PX = 1280, 860
PARTS = {  # parts of the page: the section, and its first and last elements
    "report-node.png": ("#node=gpu002", "#node h2", "#node table.readings"),
    "report-history.png": ("", "#trend", "#trend .stories"),
    "report-pairs.png": ("", "#pairs", "#pairs .drawn-pairs"),
}
NAMES = [f"gpu{number:03d}" for number in range(1, 17)]
UNREACHABLE = "gpu005"
LIMITED = NAMES[7:]  # the nodes set up last, with wrong configuration and sound hardware
FAULTS = {
    "gpu002": "an NVLink that is down",
    "gpu006": "a GPU that is lost",
    "gpu010": "a driver that does not answer",
    "gpu012": "a file server that does not answer",
    "gpu015": "an application's Xid that repeats",
}


def image(name: str) -> NodeImage:
    """The image of a node of the demo cluster."""
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
    """Probe the nodes over ssh and record their answers."""
    shutil.rmtree(DEMO, ignore_errors=True)
    reached = [name for name in NAMES if name != UNREACHABLE]
    with testbed({name: image(name) for name in reached}, refusing=[UNREACHABLE]) as bed:
        options = ["--cluster", "ssh:gpu[001-016]", "--record", str(DEMO), "--no-report", "-p", "no:cacheprovider"]
        ran = bed.run([sys.executable, "-m", "pytest", *options], timeout=600)
        print(ran.stdout.decode(), ran.stderr.decode())
    description = json.loads((DEMO / "cluster.json").read_text())
    description["cluster"] = "demo"
    (DEMO / "cluster.json").write_text(json.dumps(description, indent=1) + "\n")
    write_pictures(PICTURES, NAMES)


def draw() -> None:
    """Save pictures of the top of the demo's page and three of its parts."""
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        options = ["--cluster", "demo", "--report", folder, "-q", "-p", "no:cacheprovider"]
        subprocess.run([sys.executable, "-m", "pytest", *options], cwd=ROOT, capture_output=True, check=False)
        page = Path(folder) / PAGE
        chromium.look(width=WIDTH_PX)
        chromium.open(page)
        save(chromium, DOCS / "report.png", 0, TOP_PX)
        for name, (where, first, last) in PARTS.items():
            chromium.open(page, where)
            top = chromium.run(
                "return document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY", first
            )
            end = chromium.run(
                "return document.querySelector(arguments[0]).getBoundingClientRect().bottom + scrollY", last
            )
            save(chromium, DOCS / name, top, end - top)


def save(chromium: Browser, path: Path, top_px: float, height_px: float) -> None:
    """Save a section of the open page at its full width."""
    clip = {"x": 0, "y": max(0, top_px - 12), "width": WIDTH_PX, "height": height_px + 24, "scale": 1}
    shot = chromium.tell("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    path.write_bytes(b64decode(shot["data"]))


if __name__ == "__main__":
    record()
    draw()
