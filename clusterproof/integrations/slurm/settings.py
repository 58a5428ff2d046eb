"""The settings of Slurm's scripts: a small TOML file, parsed strictly; and what else a verdict depends on."""

from __future__ import annotations

import json
import os
import re
import time

from clusterproof.integrations.slurm.roots import distrust
from clusterproof.plugins.core.cluster import InventoryError
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.record import as_json, record
from clusterproof.plugins.core.strict import Table, nearest, parse_toml, read_text

FILE = "/etc/clusterproof/slurm.toml"
MODES = ("observe", "drain", "off")
AT_DEADLINE = ("log", "drain")
# A plain TOML line: a text without escapes, a boolean, a number; or the start of a table.
PLAIN = re.compile(
    r'(?:[ \t]*(?:([A-Za-z0-9_-]+)[ \t]*=[ \t]*(?:"([^"\\\x00-\x1f\x7f]*)"|(true|false)|(0|[1-9][0-9]{0,8}))'
    r"|\[([A-Za-z0-9_-]+)\]))?[ \t]*(?:#[^\x00-\x08\x0a-\x1f\x7f]*)?"
)
INDEX = f"{__file__.rpartition('/integrations/')[0]}/plugins/evaluation/checks.json"  # written with each version
UNNAMED = ("clusterproof.toml", "pyproject.toml")  # where a policy is looked for if none is named


class SettingsError(ClusterproofError):
    """An invalid setting, in one line."""


@record
class HealthCheck:
    """Settings of HealthCheckProgram only."""

    deadline_s: int = 40  # Slurm kills it after 60
    resume: bool = True  # nodes that it drained itself, after a passing run
    max_drained_percent: int = 10  # of a partition; the smaller of the two counts, but at least one node
    max_drained_nodes: int = 10


@record
class Settings:
    """The contents of the file; without a file, the scripts only observe."""

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
        """Whether a failure drains the node, rather than only being logged."""
        return self.mode == "drain"

    def deadline_of(self, occasion: str) -> float:
        """Seconds from the start of a script to its own deadline."""
        return self.health_check.deadline_s if occasion == "health-check" else self.deadline_s

    def as_toml(self) -> dict[str, str]:
        """Each setting except the mode in TOML notation, by name: `health_check.resume` is `true`."""
        own = {name: value for name, value in as_json(self).items() if name not in ("mode", "health_check")}
        of_health_check = {f"health_check.{name}": value for name, value in as_json(self.health_check).items()}
        return {name: json.dumps(value) for name, value in {**own, **of_health_check}.items()}


DEFAULT = Settings()


def read_settings(file: str = FILE) -> Settings:
    """The settings in a file; defaults if there is none. Raises SettingsError."""
    if not os.path.exists(file):
        return DEFAULT
    doubt = distrust_reason(file)
    if doubt:
        raise SettingsError(doubt)
    try:
        return _settings(Table(file, _toml(file)))
    except InventoryError as wrong:
        raise SettingsError(str(wrong)) from None


def distrust_reason(file: str) -> str:
    """Why a site's file is ignored, in words; empty if root alone controls it, or it is missing."""
    try:
        why = distrust(file)
    except OSError:
        return ""
    return f"{why}; expected a file that only root writes" if why else ""


def configured_names() -> frozenset[str]:
    """The names set in the file (`mode`, `health_check.resume`). Raises SettingsError."""
    if not os.path.exists(FILE):
        return frozenset()
    try:
        configured = _toml(FILE)
    except InventoryError as wrong:
        raise SettingsError(str(wrong)) from None
    of_health_check = configured.pop("health_check", {})
    return frozenset(configured) | {f"health_check.{name}" for name in Table.of("health_check", of_health_check).values}


def plain_toml(text: str) -> dict[str, object] | None:
    """Parse a text of plain lines, ten times as fast as `tomllib`; None if it is not that plain."""
    document: dict[str, object] = {}
    table = document
    for line in text.split("\n"):
        plain = PLAIN.fullmatch(line)
        key = plain and (plain[1] or plain[5])
        if not plain or key in (document if plain[5] else table):
            return None
        if plain[5]:
            document[plain[5]] = table = {}
        elif key:
            table[key] = plain[2] if plain[2] is not None else plain[3] == "true" if plain[3] else int(plain[4])
    return document


def _toml(file: str) -> dict[str, object]:
    text = read_text(file, expected="settings (integrations/slurm/install.md)")
    plain = plain_toml(text)
    return parse_toml(text, file) if plain is None else plain


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


def _one_of(table: Table, key: str, choices: tuple[str, ...], default: str) -> str:
    value = table.text(key, default)
    if value not in choices:
        raise InventoryError(
            f"{table.where}: {key} is {value!r:.40}{nearest(value, choices)}; expected {', '.join(choices)}"
        )
    return value


def _path(table: Table, key: str, default: str) -> str:
    value = table.text(key, default)
    if value and not value.startswith("/"):
        raise InventoryError(f"{table.where}: {key} is {value!r:.80}; expected a path that begins with /")
    return os.path.normpath(value) if value else value


def fingerprint_of(settings: Settings) -> str:
    """What a verdict depends on besides the node: if any of it changes, the verdict is not reused.

    The checks' settings, the policy file, the installed version, and the date, because a policy's rules end on one.

    Excludes the mode and `at_deadline`: they only decide the consequences, each time anew.
    """
    depends_on = (settings.deadline_s, settings.instance_type, *map(_version, files_of(settings)))
    return repr((depends_on, time.localtime()[:3]))


def files_of(settings: Settings) -> tuple[str, ...]:
    """The policy file, or the places where it is looked for, and a file written with each version."""
    return (INDEX, settings.policy) if settings.policy else (INDEX, *UNNAMED)


def _version(file: str) -> tuple[str, int, int, int]:
    """Changes whenever a file is written or replaced, whatever its mtime: nobody can set a ctime."""
    try:
        status = os.stat(file)
    except OSError:
        return file, 0, 0, 0
    return file, status.st_ino, status.st_size, status.st_ctime_ns
