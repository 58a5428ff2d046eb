"""Writes the source of the documentation site into a folder: docs/, and pages generated from the code.

`python -m scripts.generators.site FOLDER`; scripts/docs builds it.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from clusterproof.plugins.command_line.subcommands import OF_PYTEST
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.options import perf_table, table
from clusterproof.plugins.suite import hookspecs
from scripts.generators.checks import about_check, in_cell

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_INSTALL = ("../clusterproof/integrations/slurm/install.md", "slurm-install.md")
_OF_SUBSYSTEM = re.compile(r"\[`([\w.]+)`\]\(checks/\w+\.md#\w+\)")  # on the site each check has its own page
ORPHAN = "---\norphan: true\n---\n"  # in no menu: 150 more entries on each page make a build take minutes


def write(folder: Path) -> None:
    """Write the whole source: the pages under `docs`, and the files they link to."""
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "docs"
    shutil.copytree(DOCS, source, ignore=lambda path, names: names if Path(path) == DOCS / "checks" else ())
    (folder / "clusterproof").symlink_to(ROOT / "clusterproof")
    for path in source.rglob("*.md"):  # these are pages of the site, but files elsewhere in the repository
        text = path.read_text(encoding="utf-8").replace(*_INSTALL)
        path.write_text(_OF_SUBSYSTEM.sub(r"[`\1`](checks/\1.md)", text), encoding="utf-8")
    shutil.copy(ROOT / "integrations" / "slurm" / "install.md", source / "slurm-install.md")
    for name, text in pages().items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """The generated pages, by path."""
    made = {f"checks/{name}.md": "\n".join([ORPHAN, f"# {name}\n", *about_check(name)]) for name in all_checks()}
    return made | {
        "reference/options.md": "\n".join(_options()),
        "reference/hooks.md": "\n".join(_hooks()),
        "reference/results.md": "\n".join(_results()),
    }


def _options() -> Iterator[str]:
    yield "# Options\n\nWhat `--help-all` says of the suite's own, and those of pytest's that are of use with them.\n"
    groups = {**table.GROUPS, **perf_table.GROUPS, "of pytest": OF_PYTEST}
    for title, options in groups.items():
        yield f"## {title.removeprefix('clusterproof: ').capitalize()}\n\n| option | |\n|---|---|"
        for option in options:
            value = option.more.get("metavar") or "|".join(option.more.get("choices", ()))
            name = f"{option.flag} {value}" if option.has_value and value else option.flag
            yield f"| `{name.replace('|', chr(92) + '|')}` | {in_cell(option.words)} |"
        yield ""


def _hooks() -> Iterator[str]:
    yield "# Hooks\n\nBy which a `conftest.py` or a plugin extends the suite ([examples](../extend.md)).\n"
    for name, hook in vars(hookspecs).items():
        if name.startswith("pytest_"):
            parameters = ", ".join(
                f"{parameter}: {kind}" for parameter, kind in hook.__annotations__.items() if parameter != "return"
            )
            yield f"## {name}\n\n```python\ndef {name}({parameters}) -> {hook.__annotations__['return']}: ...\n```\n"
            yield f"{hook.__doc__}\n"


def _results() -> Iterator[str]:
    schema = json.loads((ROOT / "reports" / "result.schema.json").read_text(encoding="utf-8"))
    yield f"# The schema of results\n\n{schema['description']} More: [results](../results.md).\n"
    yield "| field | type | |\n|---|---|---|"
    for name, field in schema["$defs"]["result"]["properties"].items():
        kind = field.get("type") or ", ".join(json.dumps(value) for value in field.get("enum", [field.get("const")]))
        yield f"| `{name}` | {kind} | {in_cell(field.get('description', ''))} |"


if __name__ == "__main__":
    write(Path(sys.argv[1]))
