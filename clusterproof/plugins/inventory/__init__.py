"""`--cluster X`: resolves X to a cluster; one file for each source of nodes."""

from __future__ import annotations

import argparse
import importlib
import os.path
from collections.abc import Callable, Iterable, Mapping

from clusterproof.plugins.core.cluster import Cluster, InventoryError, Target, require_unique
from clusterproof.plugins.core.kinds import FILE, HYPERPOD, KINDS, Kind, forms
from clusterproof.plugins.core.opened import distrust
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.strict import Table, nearest, parse_expect

OTHER_WORDS = {
    **dict.fromkeys(("kubernetes", "kube"), " (did you mean k8s:?)"),
    **dict.fromkeys(("host", "hosts", "nodes"), " (did you mean ssh:?)"),
    "hyperpod": " (did you mean the cluster's NAME alone?)",
}
NOT_INVENTORIES = (".yaml", ".yml", ".json", ".ini", ".tml")
BY_ARN = "for a HyperPod cluster called so, give its ARN"
AS_FILE = f"the name is that of a file here; {BY_ARN}"


def resolve(text: str, options: Mapping[str, str] | None = None) -> Cluster:
    """The cluster that X names.

    `options` are command-line settings (`user`, `identity_file`, …), which override the inventory's own.
    Raises InventoryError.
    """
    for kind in KINDS:
        if text == kind.word or (kind.word.endswith(":") and text.startswith(kind.word)):
            return _resolve(kind, text[len(kind.word) :], options or {})
    is_file = os.path.isfile(text)  # noqa: PTH113 - where Path.is_file raises, this does not
    if is_file and is_hyperpod(text) and (doubt := distrust(text)):  # its ssh settings could name a program to run
        return _beside_a_file(text, options or {}, doubt)
    if is_file or text.endswith(".toml"):
        cluster = _resolve(FILE, text, options or {})
        return replace(cluster, notes=(*cluster.notes, AS_FILE)) if is_hyperpod(text) else cluster
    is_mistyped_kind = "-" not in text and nearest(text.lower(), [kind.word for kind in KINDS])  # no kind has a hyphen
    if is_hyperpod(text) and not is_mistyped_kind:
        return _resolve(HYPERPOD, text, options or {})
    hint = _hint(text)
    expected = "" if "did you mean" in hint or "; expected" in hint else f"; expected {forms()}"
    raise InventoryError(f"--cluster {text!r:.120}{hint}{expected}")


def _beside_a_file(text: str, options: Mapping[str, str], doubt: str) -> Cluster:
    """The HyperPod cluster of that name, with a note on the file that is not read. Raises InventoryError."""
    note = f"the file of that name here is not read: it {doubt}; with ./ before its name it is read all the same"
    try:
        cluster = _resolve(HYPERPOD, text, options)
    except InventoryError as problem:
        raise InventoryError(f"{problem}; {note}") from None
    return replace(cluster, notes=(*cluster.notes, note))


def settings_in(words: Iterable[str]) -> dict[str, str]:
    """What options of `clusterproof check` say about where the nodes are, and which count. Raises InventoryError."""
    locating = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in ("--region", "--profile", "--via"):
        locating.add_argument(flag)
    locating.add_argument("--include-drained", action="store_const", const="yes")
    try:
        option, _ = locating.parse_known_args([*words])
    except argparse.ArgumentError as problem:
        is_missing = problem.message.startswith("expected")
        why = f"has no value; {problem.message}" if is_missing else "has a value; expected it alone"
        raise InventoryError(f"{problem.argument_name} {why}") from None
    return {name: value for name, value in vars(option).items() if value}


def narrow(cluster: Cluster, nodes: str = "", exclude: str = "") -> Cluster:
    """The cluster with only `nodes` and without `exclude`: nodesets; empty ones change nothing.

    Raises InventoryError for an unknown node, an empty result, or a third-party inventory's duplicate or missing names
    and unknown expectations.
    """
    kept = require_unique(cluster.targets, f"{cluster.name:.80}")
    if not kept:
        raise InventoryError(f"{cluster.name:.80} has no node; expected at least one")
    for target in kept:
        if not target.name.strip():
            raise InventoryError(f"{cluster.name:.80} has a node without a name; expected one for each")
        Table(f"{cluster.name:.80} {target.name:.80}", {"expect": target.expect}).expect()
    if nodes:
        chosen = _members(cluster, nodes, "--nodes")
        kept = tuple(target for target in kept if target.name in chosen)
    if exclude:
        excluded = _members(cluster, exclude, "--exclude")
        kept = tuple(target for target in kept if target.name not in excluded)
    if not kept:
        raise InventoryError(f"no node of {cluster.name} is left by --nodes and --exclude; expected at least one")
    return replace(cluster, targets=kept, is_part=cluster.is_part or len(kept) < len(cluster.targets))


def with_expectations(
    cluster: Cluster, instance_type: str = "", expect: str = "", policy: Mapping[str, int] | None = None
) -> Cluster:
    """The cluster with the command line's instance type and expectations (`gpus=8,efa=32`) for every node.

    The command line overrides the inventory, and that the policy. Raises InventoryError.
    """
    numbers = parse_expect(expect)
    return replace(
        cluster,
        targets=tuple(
            replace(
                target,
                instance_type=instance_type or target.instance_type,
                expect={**(policy or {}), **target.expect, **numbers},
            )
            for target in cluster.targets
        ),
    )


OF_AWS = ("region", "profile")  # options that locate it in AWS


def _resolve(kind: Kind, rest: str, options: Mapping[str, str]) -> Cluster:
    module, _, function = kind.resolver.partition(":")
    load: Callable[[str, Mapping[str, str]], Cluster]
    load = getattr(importlib.import_module(f"clusterproof.plugins.{module}"), function)
    cluster = load(rest, options)
    if "region" not in cluster.settings:  # an option alone makes no AWS cluster
        options = {name: value for name, value in options.items() if name not in OF_AWS}
    return replace(cluster, settings={**cluster.settings, **options})


def is_hyperpod(text: str) -> bool:
    """Whether X can be a HyperPod cluster's name or ARN."""
    from clusterproof.plugins.inventory.hyperpod import ARN, NAME

    return bool(NAME.fullmatch(text) or ARN.fullmatch(text))


def _members(cluster: Cluster, text: str, option: str) -> frozenset[str]:
    from clusterproof.plugins.core.nodeset import NodesetError, expand, fold, within

    known = [target.name for target in cluster.targets]
    whole = {text} if text in known else {*text.split(",")}
    if whole <= {*known}:
        return frozenset(whole)  # these may be no nodeset: a Name tag of EC2 may hold spaces
    try:
        names = frozenset(expand(text))
    except NodesetError as problem:
        raise InventoryError(f"{option}: {problem}") from None
    strangers = names.difference(known)
    if strangers:
        hint = nearest(min(strangers), known) if len(known) <= 2000 else ""
        raise InventoryError(
            f"{option}: {within(fold(strangers), 80)} is not in {cluster.name:.80}{hint}; "
            f"expected some of {within(fold(known), 200)}"
        )
    return names


def _hint(text: str) -> str:
    """What a user who typed `text` may have meant."""
    if not text.strip():
        return " is empty"
    if os.path.isdir(text):  # noqa: PTH112
        return f" is a folder (did you mean replay:{text:.120}, or capture:{text:.120}?)"
    from clusterproof.plugins.core.nodeset import NodesetError, expand, is_user

    if text.startswith("arn:"):
        expected = "arn:aws:sagemaker:REGION:ACCOUNT:cluster/ID, as describe-cluster shows it"
        return f" is no HyperPod cluster's ARN; expected {expected}"
    if text.endswith(NOT_INVENTORIES):
        return " is not an inventory; expected FILE.toml (clusterproof init writes one to begin with)"
    word, colon, _ = text.partition(":")
    guess = OTHER_WORDS.get(word.lower(), "") or nearest((word + colon).lower(), [kind.word for kind in KINDS])
    if guess or colon:
        return f" is of no known kind{guess}{f'; {BY_ARN}' if is_hyperpod(text) else ''}"
    user, at, nodeset = text.rpartition("@")
    try:
        expand(nodeset)
    except NodesetError:
        return " is of no known kind"
    if at and not is_user(user):
        return " is of no known kind"
    return f" is of no known kind (did you mean ssh:{text:.80}?)"


__all__ = [
    "FILE",
    "KINDS",
    "Cluster",
    "InventoryError",
    "Kind",
    "Target",
    "forms",
    "narrow",
    "resolve",
    "with_expectations",
]
