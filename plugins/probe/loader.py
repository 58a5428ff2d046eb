"""The first thing that runs on a node: imports the modules that travelled in the program's text, from memory."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec

PACKAGES = ("clusterproof", "clusterproof.plugins", "clusterproof.plugins.probe")


class Travelled:
    """Finds and loads the modules that came along; their text is compiled when first imported."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """What the import system asks: a specification for a module that is here, else None."""
        if name in PACKAGES:
            return ModuleSpec(name, self, is_package=True)
        return ModuleSpec(name, self) if name in self.sources else None

    def create_module(self, _spec: ModuleSpec) -> None:
        """Leave the making of the module to Python."""

    def exec_module(self, module: object) -> None:
        """Run a module's text in it."""
        name = vars(module)["__name__"]
        code = compile(self.sources.get(name, ""), f"<{name.rpartition('.')[2]}.py>", "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - our own text, sent with this program


def start(sources: dict[str, str], leaves: dict[str, float], root: str, mount_s: float, whole_s: float) -> None:
    """Answer with the modules that came along; the command line says the nonce and what became of sudo."""
    sys.meta_path.insert(0, Travelled(sources))
    from clusterproof.plugins.probe.run import main

    main(leaves, root, mount_s, whole_s, *sys.argv[1:3])
