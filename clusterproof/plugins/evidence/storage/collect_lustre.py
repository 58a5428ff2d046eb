"""The Lustre client: its health, connections to servers, cache and tuning. Reads nothing that asks a server."""

from __future__ import annotations

from collections.abc import Iterable

from clusterproof.plugins.agent.reading import Absent, Node, error

FOLDER = "/sys/fs/lustre"
ROOTS = ("/proc/fs/lustre", "/sys/kernel/debug/lustre", FOLDER)  # newer versions moved files from one to the next
KINDS = ("mgc", "mdc", "osc")
TUNING = ("max_rpcs_in_flight", "max_mod_rpcs_in_flight", "max_dirty_mb")
MODULE_PARAMETERS = {"ptlrpcd_per_cpt_max": "ptlrpc", "credits": "ksocklnd"}
CACHE = ("max_cached_mb", "read_ahead_stats")
MAX_CLIENTS = 1024
DEACTIVATED = "DEACTIVATED"  # by an administrator, as a target that is retired; in whatever state the import was then


def read(node: Node) -> object:
    """The client's own health report, each import's state, the cache of each mount, and its tuning. Raises Absent."""
    pairs = connections(node, KINDS)
    rows = {pair: {"kind": pair[0], "name": _server(pair[1])} for pair in pairs[:MAX_CLIENTS]}
    others = {
        "version": node.text(f"{FOLDER}/version", absent=""),
        "health": _first(node, "health_check"),
        "left_out": max(0, len(pairs) - MAX_CLIENTS),
        "caches": [
            {"name": name, **{file: _first(node, f"llite/{name}/{file}") for file in CACHE}}
            for name in clients(node, "llite")
        ],
        "modules": {
            name: whole(node.text(f"/sys/module/{module}/parameters/{name}"))
            for name, module in MODULE_PARAMETERS.items()
        },
    }
    return node.each("clients", rows, lambda pair: _client(node, rows[pair], *pair), others)


def connections(node: Node, kinds: Iterable[str]) -> list[tuple[str, str]]:
    """The clients of these kinds, each with its kind and name. Raises Absent."""
    if not any(node.exists(path) for path in ("/sys/module/lustre", FOLDER, ROOTS[0])):
        raise Absent("no Lustre client: no module lustre is loaded")
    return [(kind, name) for kind in kinds for name in clients(node, kind)]


def clients(node: Node, kind: str) -> list[str]:
    """The names of the clients of one kind: `abcdefgh-OST0000-osc-ffff…`; empty if this user may not read them."""
    names: set[str] = set()
    for root in ROOTS:
        try:
            names.update(name for name in node.names(f"{root}/{kind}") if "-" in name or name.startswith("MGC"))
        except OSError:
            continue  # only root may read debugfs; the others show the same names
    return sorted(names)


def whole(text: object) -> object:
    """The number in a file's text; the text itself if it is not a number."""
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 20 else text


def _server(name: str) -> str:
    return name[3:] if name.startswith("MGC") else name  # only the address of MGC10.1.2.3@tcp


def _client(node: Node, row: dict[str, str], kind: str, name: str) -> dict[str, object]:
    node.at(f"{kind} {name}")
    client = {**row, "state": _state(_first(node, f"{kind}/{name}/import"))}
    files = {key: f"{kind}/{name}/{key}" for key in TUNING}
    files["lru_max_age_ms"] = f"ldlm/namespaces/{name}/lru_max_age"
    for key, file in files.items():
        text = node.text(f"{FOLDER}/{file}", absent="")
        if text != "":
            client[key] = whole(text)
    return client


def _first(node: Node, path: str) -> object:
    """The text of a file under the first root that has it; otherwise the last error in reading it."""
    problem = error(FileNotFoundError(2, "", f"{FOLDER}/{path}"))
    for root in ROOTS:
        text = node.text(f"{root}/{path}", absent="")
        if isinstance(text, str) and text:
            return text
        if not isinstance(text, str):
            problem = text
    return problem


def _state(text: object) -> object:
    """The word after `state:` in an import's text, or that it is deactivated."""
    if not isinstance(text, str):
        return text
    if "deactive" in text:
        return DEACTIVATED
    states = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.strip().startswith("state:")]
    return states[0] if states else {"error": "EINVAL", "text": "an import without a state"}
