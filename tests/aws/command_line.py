"""A stand-in for the `aws` command: its words, held against AWS's own models, answered by the test's service."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

SCRIPT = """#!{python}
import sys
sys.path.insert(0, {root!r})
from tests.aws.command_line import main
sys.exit(main(sys.argv[1:]))
"""


def install_aws(folder: Path) -> None:
    """Put `aws` into a folder that is on PATH."""
    command = folder / "aws"
    command.write_text(SCRIPT.format(python=sys.executable, root=str(Path(__file__).parents[2])))
    command.chmod(command.stat().st_mode | stat.S_IXUSR)


def main(words: list[str]) -> int:
    """`aws SERVICE OPERATION --option value … [--query JMESPATH] [--output text]`; any other option is refused."""
    import boto3
    import jmespath

    service, operation, *rest = words
    client = boto3.client(service)
    if (service, operation) == ("s3", "cp"):
        return _copy(client, [word for word in rest if word != "--quiet"])
    options = _options(rest[1:] if operation == "wait" else rest)
    query, output = options.pop("query", [""])[0], options.pop("output", ["json"])[0]
    if operation == "wait":
        waiter = client.get_waiter(rest[0].replace("-", "_"))
        waiter.wait(InstanceIds=options["instance-ids"], WaiterConfig={"Delay": 0, "MaxAttempts": 5})
        return 0
    method = operation.replace("-", "_")
    model = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[method]).input_shape
    asked = {}
    count = options.pop("count", None)
    if count:  # the command's own word, which the API does not have
        asked |= {"MinCount": int(count[0]), "MaxCount": int(count[0])}
    for name, values in options.items():
        member = next(key for key in model.members if _kebab(key) == name)
        asked[member] = _value(model.members[member], values)
    told = getattr(client, method)(**asked)
    found = jmespath.search(query, told) if query else None
    assert output == "text" or not query
    lines = found if isinstance(found, list) else [found]
    print("\t".join(map(str, lines)))  # noqa: T201 - what a command does
    return 0


def _copy(client: object, words: list[str]) -> int:
    source, target = words
    bucket, _, key = source.removeprefix("s3://").partition("/")
    client.download_file(bucket, key, target)  # type: ignore[attr-defined]
    return 0


def _options(words: list[str]) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            options[word[2:]] = values = []
        else:
            values.append(word)
    return options


def _kebab(name: str) -> str:
    out = "".join(f"-{char.lower()}" if char.isupper() else char for char in name)
    return out.lstrip("-")


def _value(shape: object, values: list[str]) -> object:
    kind = shape.type_name  # type: ignore[attr-defined]
    if kind == "list":
        member = shape.member  # type: ignore[attr-defined]
        return [_shorthand(member, value) if member.type_name == "structure" else value for value in values]
    (value,) = values
    if value.startswith("file://"):
        value = Path(value[7:]).read_text()
    return _shorthand(shape, value) if kind == "structure" else value


def _shorthand(shape: object, text: str) -> object:
    """AWS's shorthand, as far as it is used here: `Key=a,Values=b,c` and `Tags=[{Key=a,Value=b},{…}]`."""
    members = shape.members  # type: ignore[attr-defined]
    told: dict[str, object] = {}
    key = ""
    for part in _split(text):
        name, equals, value = part.partition("=")
        if not equals:
            told[key].append(name)  # type: ignore[attr-defined] # a further value of the list before
            continue
        key = next(one for one in members if one.lower() == name.lower())
        of = members[key]
        if of.type_name != "list":
            told[key] = value
        elif value.startswith("["):
            told[key] = [_shorthand(of.member, one.strip("{}")) for one in _split(value[1:-1])]
        else:
            told[key] = [value]
    return told


def _split(text: str) -> list[str]:
    """At its commas, those in brackets apart."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "[{") - (char in "]}")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts
