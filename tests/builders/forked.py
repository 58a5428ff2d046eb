"""Runs `clusterproof` command lines, each in a fork of one Python that has already loaded the suite.

Loading takes half the time of a short command. A fork has its own folder, environment and streams, and exits as the
program does; but its modules were loaded earlier, in an environment without the caller's variables.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.builders.wheel import Installed, clean_environment

# Neither checks nor plugins that pytest loads itself, since it must rewrite their assertions on first load.
PARENT = """
import atexit, gc, json, os, pkgutil, sys
from importlib import import_module

os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # as main has it before it loads pytest
from clusterproof.plugins.command_line.main import main
import _pytest.config, botocore.session, rich.console

for name in _pytest.config.default_plugins:
    import_module(f"_pytest.{name}")
left = [f"clusterproof.plugins.{name}" for name in ("cluster", "command_line.own_checks", "suite.terminal")]
for package in ("core", "catalog", "evidence", "inventory", "evaluation", "options", "policy", "transport", "suite"):
    package = import_module(f"clusterproof.plugins.{package}")
    for module in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{package.__name__}."):
        if module.name not in left and not any(part in module.name for part in (".collect", ".on_node", ".reporters")):
            import_module(module.name)
gc.freeze()


def run(cwd, environment, words, streams):
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(streams):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), number)
    sys.argv = words
    try:
        sys.exit(main())
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


for line in sys.stdin:
    child = os.fork()
    if not child:
        run(*json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Forked:
    """The forking Python of an installed environment."""

    installed: Installed
    parent: subprocess.Popen[str]

    def run(self, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `clusterproof` with these arguments in a folder that is also its user's home, as `Installed.run` does."""
        with TemporaryDirectory() as folder:
            streams = ["/dev/null", f"{folder}/stdout", f"{folder}/stderr"]
            request = (str(cwd), clean_environment(cwd, self.installed), ["clusterproof", *arguments], streams)
            assert self.parent.stdin
            assert self.parent.stdout
            self.parent.stdin.write(json.dumps(request) + "\n")
            self.parent.stdin.flush()
            code = self.parent.stdout.readline()
            assert code, f"it has ended: {self.parent.poll()}"
            outputs = [Path(path).read_text(encoding="utf-8") for path in streams[1:]]
        return subprocess.CompletedProcess(arguments, int(code), *outputs)


@contextlib.contextmanager
def forking(installed: Installed, home: Path) -> Iterator[Forked]:
    """Start one that runs until the block ends."""
    command = [str(installed.python), "-c", PARENT]
    with subprocess.Popen(
        command,
        cwd=home,
        env=clean_environment(home, installed),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        yield Forked(installed, parent)
        assert parent.stdin
        parent.stdin.close()
