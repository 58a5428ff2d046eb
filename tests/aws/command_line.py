"""A stand-in for the `aws` command: it checks arguments against AWS's models, and the test's service answers."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any, NamedTuple

import boto3
import jmespath
from botocore.exceptions import BotoCoreError, ClientError

# Small, because each start of boto3 would take half a second: the test's own process answers.
SCRIPT = """#!{python} -IS
import json, os, socket, sys
words = [open(word[7:]).read() if word.startswith("file://") else word for word in sys.argv[1:]]
with socket.create_connection(("127.0.0.1", {port})) as asked:
    asked.sendall(json.dumps(words).encode() + b"\\n")
    result = json.loads(asked.makefile("rb").read())
sys.stdout.write(result["said"])
sys.stderr.write(result["wrong"])
sys.exit(result["exit"])
"""


class Result(NamedTuple):
    """A command's output and exit code."""

    said: str = ""
    wrong: str = ""
    exit: int = 0


@contextmanager
def aws_in(folder: Path) -> Iterator[None]:
    """Put `aws` into a folder on PATH."""
    clients: dict[str, Any] = {}

    class Asked(StreamRequestHandler):
        def handle(self) -> None:
            result = _answer(json.loads(self.rfile.readline()), clients)
            self.wfile.write(json.dumps(result._asdict()).encode())

    with ThreadingTCPServer(("127.0.0.1", 0), Asked) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        folder.mkdir(exist_ok=True)
        command = folder / "aws"
        command.write_text(SCRIPT.format(python=sys.executable, port=server.server_address[1]))
        command.chmod(0o755)
        yield
        server.shutdown()


def _answer(arguments: list[str], clients: dict[str, Any]) -> Result:
    try:
        return Result(_output(arguments, clients))
    except (BotoCoreError, ClientError) as problem:
        return Result(wrong=f"{problem}\n", exit=254)


def _output(arguments: list[str], clients: dict[str, Any]) -> str:
    """Answer `aws SERVICE OPERATION --option value … [--query JMESPATH] [--output text]`; refuse any other option."""
    service, operation, *rest = arguments
    if service not in clients:
        clients[service] = boto3.client(service)
    client = clients[service]
    if (service, operation) == ("s3", "cp"):
        source, _ = [word for word in rest if word != "--quiet"]
        bucket, _, key = source.removeprefix("s3://").partition("/")
        return str(client.get_object(Bucket=bucket, Key=key))
    options = _options(rest[1:] if operation == "wait" else rest)
    query, output = options.pop("query", [""])[0], options.pop("output", ["json"])[0]
    if operation == "wait":
        waiter = client.get_waiter(rest[0].replace("-", "_"))
        waiter.wait(InstanceIds=options["instance-ids"], WaiterConfig={"Delay": 0, "MaxAttempts": 5})
        return ""
    method = operation.replace("-", "_")
    model = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[method]).input_shape
    request: dict[str, Any] = {}
    count = options.pop("count", None)
    if count:  # the command's own option, which the API lacks
        request |= {"MinCount": int(count[0]), "MaxCount": int(count[0])}
    for name, values in options.items():
        member = next(key for key in model.members if _kebab(key) == name)
        request[member] = _value(model.members[member], values)
    response = getattr(client, method)(**request)
    selected = jmespath.search(query, response) if query else None
    assert output == "text" or not query
    lines = selected if isinstance(selected, list) else [selected]
    return "\t".join(map(str, lines)) + "\n"


def _options(arguments: list[str]) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {}
    for word in arguments:
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
    return _shorthand(shape, value) if kind == "structure" else value


def _shorthand(shape: object, text: str) -> object:
    """Parse AWS's shorthand as far as it is used here: `Key=a,Values=b,c` and `Tags=[{Key=a,Value=b},{…}]`."""
    members = shape.members  # type: ignore[attr-defined]
    structure: dict[str, object] = {}
    key = ""
    for part in _split(text):
        name, equals, value = part.partition("=")
        if not equals:
            structure[key].append(name)  # type: ignore[attr-defined] # a further value of the list before
            continue
        key = next(member for member in members if member.lower() == name.lower())
        of = members[key]
        if of.type_name != "list":
            structure[key] = value
        elif value.startswith("["):
            structure[key] = [_shorthand(of.member, item.strip("{}")) for item in _split(value[1:-1])]
        else:
            structure[key] = [value]
    return structure


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "[{") - (char in "]}")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts
