"""Renders integrations/kubernetes's manifests for kubectl from the chart's templates and default values."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.counterparts import installed

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "clusterproof" / "integrations" / "kubernetes"
NAMES = ("agent", "gate", "confined", "taints")
ALL = "mode=taint"  # enables every template
IMAGE = "to-be-named"
CHECKSUM = "        checksum/settings: "  # a chart needs it; kustomize puts a hash in the settings' name
HEADER = "# Made of chart/templates/{name}.yaml by scripts/generate manifests.\n"


def main() -> None:
    """Write the manifests."""
    if not (installed.folder("kubernetes") / "installed").exists():
        sys.exit("helm is not installed; expected it: scripts/counterparts kubernetes")
    for name, text in manifests():
        (FOLDER / f"{name}.yaml").write_text(text)


def manifests() -> Iterator[tuple[str, str]]:
    """Each manifest's name and text."""
    for name in NAMES:
        yield name, HEADER.format(name=name) + _plain(name, rendered(name))


def rendered(name: str) -> str:
    """Render a template with helm."""
    arguments = ["template", "clusterproof", str(FOLDER / "chart"), "--namespace", "clusterproof", "--set", ALL]
    arguments += ["--set", f"image={IMAGE}", "--show-only", f"templates/{name}.yaml"]
    helm = str(installed.folder("kubernetes") / "helm")
    return subprocess.run([helm, *arguments], capture_output=True, text=True, check=True).stdout


def _plain(name: str, text: str) -> str:
    """Remove what only charts have, and the image: the API server accepts none until it has a name."""
    parts = text.split(f"---\n# Source: clusterproof/templates/{name}.yaml\n")
    lines = "---\n".join(parts[1:]).splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(CHECKSUM)).replace(f'"{IMAGE}"', '""')


if __name__ == "__main__":
    main()
