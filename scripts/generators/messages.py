"""Collects every message that the suite can print from its source, into one page for review."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.rules import rules, sentence

ROOT = Path(__file__).parents[2]
PATH = ROOT / "docs" / "messages.md"
SAYS = ("fail", "concern", "incomplete", "not_applicable")
GOES_ON = ("fail_if", "concern_if")  # the message follows the condition
SHORTEST = 12  # letters; anything shorter is no sentence
HEAD = """# Every message

What the suite can say, read off its source by `scripts/generate`; `…` stands for what differs.
A change of a message changes this page: read there what a person will read.
"""


def messages() -> str:
    """The page."""
    return "\n".join([HEAD, "## Checks\n", *_of_checks(), "## Everything else\n", *_of_rooms()])


def _of_checks() -> Iterator[str]:
    for name, check in sorted(all_checks().items()):
        yield f"- **{name}**: {_text(check.route.title)}"
        if check.route.meaning:
            yield f"  - means: {_text(check.route.meaning)}"
        yield f"  - do ({check.route.action}): {_text(check.route.remedy)}"
        yield from (f"  - {rule.verdict}: {_text(rule.sentence)}" for rule in rules(check.function))
    yield ""


def _of_rooms() -> Iterator[str]:
    for path in sorted((ROOT / "clusterproof").rglob("*.py")):
        sentences = dict.fromkeys(said_in(path))
        if sentences and "checks" not in path.parts:
            yield f"### {path.relative_to(ROOT)}\n"
            yield from (f"- {_text(message)}" for message in sentences)
            yield ""


def said_in(path: Path) -> Iterator[str]:
    """The texts of raised errors, findings and printed lines, in source order."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        raised = node.exc if isinstance(node, ast.Raise) else None
        call = raised if isinstance(raised, ast.Call) else node if isinstance(node, ast.Call) and _says(node) else None
        message = sentence(text) if call and (text := _message(call)) else ""
        if len(message.replace("…", "").strip()) >= SHORTEST:
            yield message


def _message(call: ast.Call) -> ast.expr | None:
    behind = call.args[1:] if _name(call) in GOES_ON else call.args
    return behind[0] if behind else None


def _says(call: ast.Call) -> bool:
    name, others = _name(call), ("print", "write_line", "UsageError", "Incomplete", "NotApplicable")
    return name in (*SAYS, *GOES_ON, *others) or name.endswith("Error")


def _name(call: ast.Call) -> str:
    """The last part of the called name: `fail` of `verdict.fail(…)`."""
    return str(getattr(call.func, "id", getattr(call.func, "attr", "")))


def _text(message: str) -> str:
    line = " ".join(message.split())
    return "".join(f"\\{char}" if char in "\\`*_{}[]<>#|$" else char for char in line)


if __name__ == "__main__":
    PATH.write_text(messages(), encoding="utf-8")
