"""The plan of an acceptance: what was bought, both error rates, allowed load, time, and stages. TOML."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from clusterproof.plugins.accept.plan_options import minutes, option_words
from clusterproof.plugins.accept.population import Errors
from clusterproof.plugins.benchmarks.pairwise.groups import FIRST_SIZE, MIN_NODES
from clusterproof.plugins.catalog import Catalog, acceptance
from clusterproof.plugins.catalog.acceptance import Stage
from clusterproof.plugins.catalog.instance_types import ec2_name
from clusterproof.plugins.core.cluster import Cluster, InventoryError, is_loaded_by_pods
from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.core.record import as_json, record
from clusterproof.plugins.core.strict import Table, nearest, parse_toml, read_text

DESCRIBED = "docs/accept.md"
TABLES = ("bought", "errors", "limits", "stages", "floors", "options")
MAX_HOURS, MAX_NODES, MAX_RUNS = 24 * 60, 100_000, 100
SPEED = "speed"  # the stage whose measurements populations judge
FILES, OF_FILES = "fs_bandwidth", "--fs-bandwidth"  # a measurement, and the option with its folder
OF_NEURON = ("trn", "inf")  # instance types
MIN_ERROR, MIN_SHARE = 1e-9, 0.01  # the smallest that a plan may declare


@record
class AcceptancePlan:
    """What is to be proven, and how. `options` are those of `clusterproof check`; `at_once` 0 means all nodes."""

    bought: Mapping[str, object]  # nodes, type, and what each node should have
    errors: Errors
    most_runs: int
    hours: float
    nodes_at_once: int
    pairs_at_once: int
    fs_at_once: int
    stages: tuple[Stage, ...]
    floors: Mapping[str, float]  # by measurement
    options: tuple[str, ...]

    @property
    def digest(self) -> str:
        """A digest of the whole plan: another plan is another acceptance."""
        return hashlib.sha256(repr(as_json(self)).encode()).hexdigest()

    @property
    def expectations(self) -> tuple[str, ...]:
        """What each run expects of nodes."""
        counted = [f"{name}={count}" for name, count in self.bought.items() if name not in ("nodes", "type")]
        return (f"--expect={','.join(counted)}",) if counted else ()

    def at_once(self, count: int) -> int:
        """How many of these nodes may be under load at the same time."""
        return min(count, self.nodes_at_once or count)

    @property
    def pairs_limit(self) -> int:
        """How many pairs may be under load at the same time; 0: all."""
        return min(filter(None, (self.pairs_at_once, self.nodes_at_once // 2)), default=0)

    def largest_group(self, count: int) -> int:
        """The largest number of nodes for collectives; 0 if there is no group."""
        at_once = 2 * self.pairs_limit
        if not at_once or count <= at_once:
            return count if count >= MIN_NODES else 0
        return 1 << at_once.bit_length() - 1 if at_once >= FIRST_SIZE else 0

    def minutes(self, stage: Stage) -> float:
        """The approximate duration of one run of one batch of a stage."""
        return minutes(stage, self.options)


def options_of(path: Path | None) -> tuple[str, ...]:
    """The options that each run of a plan has; none without a file. Raises InventoryError."""
    return tuple(option_words(_head(path).table("options")))


def _head(path: Path | None) -> Table:
    record = parse_toml(read_text(path, f"a plan ({DESCRIBED})"), path.name, DESCRIBED) if path else {}
    return Table(path.name if path else "the plan", record)


def plan_of(path: Path | None, cluster: Cluster) -> AcceptancePlan:
    """The plan in a file, completed for these nodes; without a file the default. Raises InventoryError."""
    head = _head(path)
    head.only(*TABLES)
    defaults = acceptance.defaults(kind_of(cluster))
    limits, errors = head.table("limits"), head.table("errors")
    most_runs = errors.number("most_runs", 1, MAX_RUNS, acceptance.default_errors().most_runs)
    limits.only("hours", "nodes_at_once", "pairs_at_once", "fs_at_once")
    stages = _stages(head, [name for name in defaults.stages if name not in _impossible(cluster)])
    between = [stage.name for stage in stages if stage.is_load and stage.scope != "nodes"]
    if limits.values.get("nodes_at_once") == 1 and between:
        raise InventoryError(
            f"{limits.where}: nodes_at_once is 1, and {', '.join(between)} load two nodes at once or more; expected 2 "
            "or more, or stages without these"
        )
    options, floors = tuple(option_words(head.table("options"))), _floors(head.table("floors"))
    _require_measured(floors, stages, options, head.table("floors").where)
    return AcceptancePlan(
        _bought(head.table("bought")),
        _errors(errors, most_runs),
        most_runs,
        _number(limits, "hours", 0, MAX_HOURS, defaults.hours),
        limits.number("nodes_at_once", 1, MAX_NODES),
        limits.number("pairs_at_once", 1, MAX_NODES),
        limits.number("fs_at_once", 1, MAX_NODES, 4),
        stages,
        floors,
        options,
    )


def kind_of(cluster: Cluster) -> str:
    """`gpu`, `neuron` or `cpu`, according to the inventory; GPUs if it says nothing."""
    catalog = Catalog.of(NO_POLICY)
    kinds = set()
    for target in cluster.targets:
        if target.expect.get("gpus"):
            kinds.add("gpu")
        elif target.instance_type:
            has_none = catalog.accelerators(target.instance_type) == 0
            is_neuron = ec2_name(target.instance_type).startswith(OF_NEURON)
            kinds.add("neuron" if is_neuron else "cpu" if has_none else "gpu")
    return kinds.pop() if len(kinds) == 1 else "gpu"


def _bought(bought: Table) -> Mapping[str, object]:
    bought.only("nodes", "type", "expect")
    record: dict[str, object] = {}
    if "nodes" in bought.values:
        record["nodes"] = bought.number("nodes", 1, MAX_NODES)
    if "type" in bought.values:
        record["type"] = bought.text("type")
    return record | bought.expect()


def _errors(given: Table, most_runs: int) -> Errors:
    own = acceptance.default_errors()
    above = {"good_rejected": MIN_ERROR, "bad_accepted": MIN_ERROR, "slower": 0, "shows_in": MIN_SHARE}
    given.only(*above, "most_runs")
    errors = Errors(*(_number(given, name, least, 1, getattr(own, name)) for name, least in above.items()))
    if errors.least_runs > most_runs:
        raise InventoryError(
            f"{given.where}: bad_accepted and shows_in ask for {errors.least_runs} runs of each node; expected at most "
            f"{most_runs}, as most_runs says"
        )
    return errors


def _number(given: Table, key: str, above: float, below: float, default: float) -> float:
    value = given.values.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not above < value < below:
        raise InventoryError(
            f"{given.where}: {key} is {value!r:.40}; expected a number above {above:g} and below {below:g}"
        )
    return float(value)


def _impossible(cluster: Cluster) -> tuple[str, ...]:
    """The stages for which this connection has no launcher: pods are started in pairs."""
    return ("collectives",) if is_loaded_by_pods(cluster) else ()


def _stages(head: Table, default: Sequence[str]) -> tuple[Stage, ...]:
    known = acceptance.stages()
    value = head.values.get("stages", list(default))
    if not isinstance(value, list) or not value or len(set(map(str, value))) < len(value):
        raise InventoryError(f"{head.where}: stages is {value!r:.80}; expected a list of {', '.join(known)}, each once")
    for name in value:
        if not isinstance(name, str) or name not in known:
            hint = nearest(str(name), known)
            raise InventoryError(f"{head.where}: there is no stage {name!r:.40}{hint}; expected {', '.join(known)}")
    if value[0] != next(iter(known)):
        raise InventoryError(
            f"{head.where}: stages begin with {value[0]!r:.40}; expected inventory, which says what is there"
        )
    return tuple(known[name] for name in known if name in value)


def _floors(given: Table) -> Mapping[str, float]:
    given.only(*acceptance.measures())
    return {name: _number(given, name, 0, 1e9, 0.0) for name in given.values}


def _require_measured(floors: Mapping[str, float], stages: Sequence[Stage], options: Sequence[str], where: str) -> None:
    """Reject requirements that would never be measured. Raises InventoryError."""
    if floors and SPEED not in {stage.name for stage in stages}:
        raise InventoryError(
            f"{where}: {', '.join(floors)} is measured by the stage {SPEED}; expected it among the stages, or no floors"
        )
    if FILES in floors and not any(word.startswith(f"{OF_FILES}=") and word != f"{OF_FILES}=" for word in options):
        raise InventoryError(
            f"{where}: {FILES} is measured where [options] name a folder; expected fs-bandwidth among them"
        )
