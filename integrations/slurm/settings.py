"""The settings of Slurm's scripts: one small TOML file, read strictly."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from clusterproof.plugins.inventory.model import InventoryError
from clusterproof.plugins.inventory.strict import Table, nearest, read_text

FILE = Path("/etc/clusterproof/slurm.toml")
MODES = ("observe", "drain", "off")
AT_DEADLINE = ("log", "drain")


class SettingsError(Exception):
    """A setting that means nothing, in one line."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """What is set for HealthCheckProgram alone."""

    deadline_s: int = 40  # Slurm kills it after 60
    resume: bool = True  # what it drained itself, after a run that passes
    max_drained_percent: int = 10  # of a partition; whichever of the two is less, and one node in any case
    max_drained_nodes: int = 10


@dataclass(frozen=True, slots=True)
class Settings:
    """What the file says; without a file, the scripts only observe."""

    mode: str = "observe"
    deadline_s: int = 5
    at_deadline: str = "log"
    reuse_s: int = 60
    state: str = "/var/lib/clusterproof/slurm"
    policy: str = ""
    instance_type: str = ""
    health_check: HealthCheck = HealthCheck()

    @property
    def drains(self) -> bool:
        """Whether a fail drains the node, rather than being logged."""
        return self.mode == "drain"


DEFAULT = Settings()


def read_settings(file: Path = FILE) -> Settings:
    """The settings of a file; the defaults where there is none. Raises SettingsError."""
    if not file.exists():
        return DEFAULT
    try:
        return _settings(Table(str(file), _toml(file)))
    except InventoryError as wrong:
        raise SettingsError(str(wrong)) from None


def _toml(file: Path) -> dict[str, object]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        parsed: dict[str, object] = tomllib.loads(read_text(file, expected="settings (integrations/slurm/install.md)"))
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise InventoryError(f"{file} is not TOML: {problem}") from None
    return parsed


def _settings(table: Table) -> Settings:
    table.only("mode", "deadline_s", "at_deadline", "reuse_s", "state", "policy", "instance_type", "health_check")
    return Settings(
        mode=_one_of(table, "mode", MODES, DEFAULT.mode),
        deadline_s=table.number("deadline_s", 3, 8, DEFAULT.deadline_s),
        at_deadline=_one_of(table, "at_deadline", AT_DEADLINE, DEFAULT.at_deadline),
        reuse_s=table.number("reuse_s", 0, 3600, DEFAULT.reuse_s),
        state=_path(table, "state", DEFAULT.state),
        policy=_path(table, "policy", DEFAULT.policy),
        instance_type=table.text("instance_type"),
        health_check=_health_check(table.table("health_check")),
    )


def _health_check(table: Table) -> HealthCheck:
    default = DEFAULT.health_check
    table.only("deadline_s", "resume", "max_drained_percent", "max_drained_nodes")
    return HealthCheck(
        deadline_s=table.number("deadline_s", 3, 50, default.deadline_s),
        resume=table.flag("resume") if "resume" in table.values else default.resume,
        max_drained_percent=table.number("max_drained_percent", 0, 100, default.max_drained_percent),
        max_drained_nodes=table.number("max_drained_nodes", 1, 100_000, default.max_drained_nodes),
    )


def _one_of(table: Table, key: str, known: tuple[str, ...], default: str) -> str:
    told = table.text(key, default)
    if told not in known:
        raise InventoryError(f"{table.where}: {key} is {told!r:.40}{nearest(told, known)}; expected {', '.join(known)}")
    return told


def _path(table: Table, key: str, default: str) -> str:
    told = table.text(key, default)
    if told and not told.startswith("/"):
        raise InventoryError(f"{table.where}: {key} is {told!r:.80}; expected a path that begins with /")
    return told
