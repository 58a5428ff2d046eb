"""The first code that runs on a node: imports from memory the modules that travelled with the program."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec


class ModuleFinder:
    """Finds and loads the modules that came along; their text is compiled when first imported."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources
        self.packages = {name.rsplit(".", depth)[0] for name in sources for depth in (1, 2, 3)}

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Called by the import system: a specification for a module that travelled, else None."""
        if name not in self.sources and name not in self.packages:
            return None
        return ModuleSpec(name, self, is_package=name not in self.sources)  # type: ignore[arg-type] # by its methods

    def create_module(self, _spec: ModuleSpec) -> None:
        """Use Python's default module creation."""

    def get_source(self, name: str) -> str:
        """The source of a module."""
        return self.sources.get(name, "")

    def exec_module(self, module: object) -> None:
        """Execute a module."""
        name = vars(module)["__name__"]
        file = name.rpartition(".")[2] + ".py"
        code = compile(self.get_source(name), file, "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - our own text, sent with this program


def start(sources: dict[str, str], runner: str, *request: object) -> None:
    """Let one of the modules that came along answer; the command line says the nonce and what became of sudo."""
    sys.meta_path.insert(0, ModuleFinder(sources))
    import_module(runner).main(*request, *sys.argv[1:3])
