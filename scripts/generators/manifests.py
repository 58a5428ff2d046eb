"""The manifests of integrations/kubernetes that kubectl applies: the chart's templates, with its own values."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.counterparts import installed

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "clusterproof" / "integrations" / "kubernetes"
NAMES = ("agent", "gate", "confined", "taints")
ALL = "mode=taint"  # with which every template has something to say
IMAGE = "to-be-named"
CHECKSUM = "        checksum/settings: "  # a chart's; kustomize names settings by their hash
HEADER = "# Made of chart/templates/{name}.yaml by scripts/generate manifests.\n"


def main() -> None:
    """Write them."""
    if not (installed.folder("kubernetes") / "installed").exists():
        sys.exit("helm is not installed; expected it: scripts/counterparts kubernetes")
    for name, text in manifests():
        (FOLDER / f"{name}.yaml").write_text(text)


def manifests() -> Iterator[tuple[str, str]]:
    """The name and the text of each."""
    for name in NAMES:
        yield name, HEADER.format(name=name) + _plain(name, rendered(name))


def rendered(name: str) -> str:
    """What helm makes of a template."""
    words = ["template", "clusterproof", str(FOLDER / "chart"), "--namespace", "clusterproof", "--set", ALL]
    words += ["--set", f"image={IMAGE}", "--show-only", f"templates/{name}.yaml"]
    helm = str(installed.folder("kubernetes") / "helm")
    return subprocess.run([helm, *words], capture_output=True, text=True, check=True).stdout


def _plain(name: str, text: str) -> str:
    """The same without what only a chart has, and without an image: the API server takes none until it has a name."""
    parts = text.split(f"---\n# Source: clusterproof/templates/{name}.yaml\n")
    lines = "---\n".join(parts[1:]).splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(CHECKSUM)).replace(f'"{IMAGE}"', '""')


if __name__ == "__main__":
    main()
