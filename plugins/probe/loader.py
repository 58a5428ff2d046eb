"""The first thing that runs on a node: imports from memory the modules that travelled with the program."""

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
        if name not in self.sources and name not in PACKAGES:
            return None
        return ModuleSpec(name, self, is_package=name in PACKAGES)  # type: ignore[arg-type] # by its methods

    def create_module(self, _spec: ModuleSpec) -> None:
        """Leave the making of the module to Python."""

    def exec_module(self, module: object) -> None:
        """Run a module's text in it."""
        name = vars(module)["__name__"]
        file = name.rpartition(".")[2] + ".py"
        code = compile(self.sources.get(name, ""), file, "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - our own text, sent with this program


def start(
    sources: dict[str, str],
    leaves: dict[str, float],
    root: str,
    mount_s: float,
    whole_s: float,
    checkpoints: tuple[str, ...],
    log_cursor: tuple[str, int, float],
) -> None:
    """Answer with the modules that came along; the command line says the nonce and what became of sudo."""
    sys.meta_path.insert(0, Travelled(sources))
    from clusterproof.plugins.probe.run import main

    main(leaves, root, mount_s, whole_s, checkpoints, log_cursor, *sys.argv[1:3])
