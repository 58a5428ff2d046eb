"""Installed software and versions, image contents, and environment settings of a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    boolean,
    integer,
    objects,
    objects_as,
    optional,
    read,
    readings,
    table,
    text,
    texts,
)

MAX_COMPONENTS = 64


def _versions(data: object) -> Mapping[str, object]:
    """The report on each component: an object with its version and the source of it, or an error object."""
    known = table(data)
    return known if len(known) <= MAX_COMPONENTS else dict(list(known.items())[:MAX_COMPONENTS])


@record
class File(Reported):
    """A file of the node."""

    path = Field(text)

    @property
    def label(self) -> str:
        """The path; a phrase if it is unknown."""
        return str(readings(self, "path")[0].get("path", "a file"))


@record
class Library(File):
    """A library under the file name that the loader looks for."""

    bytes = Field(integer)

    @property
    def dangles(self) -> bool:
        """Whether it is a dangling link."""
        size = self.data.get("bytes")
        return isinstance(size, dict) and size.get("error") == "ENOENT"


def _libraries(data: object) -> Mapping[str, tuple[Library, ...]]:
    return {name: tuple(Library(entry) for entry in objects(entries)) for name, entries in table(data).items()}


@record
class Software(Reported):
    """The versions of a node's components, by name.

    `container` is the kind of container that they are in, empty for a host; `toolkits` are the CUDA toolkits in folders
    of their own.
    """

    container = Field(text)
    components = Field(_versions)
    toolkits = Field(texts)
    libraries = Field(_libraries)

    @property
    def packages(self) -> None:
        """Returns nothing if the package database was read, or there is none. Raises Incomplete."""
        if "packages" in self.components:
            read(self.components["packages"], _version, "the package database")

    @property
    def unreported(self) -> tuple[str, ...]:
        """The components that may be installed but were not reported, as the package database could not be read."""
        if "packages" not in self.components:
            return ()
        from clusterproof.plugins.evidence.software.collect_versions import PACKAGES  # a prolog does not look for these

        return tuple(component for component in PACKAGES if component not in self.components)

    def version(self, component: str) -> str | None:
        """A component's version; None if the node does not have it. Raises Incomplete if it could not be read."""
        if component not in self.components:
            return None
        return read(self.components[component], _version, component)

    def names_no_version(self, component: str) -> str:
        """The text of a file that should contain a component's version but does not; empty otherwise."""
        entry = self.components.get(component)
        if not isinstance(entry, dict) or entry.get("error") != "EINVAL":
            return ""
        return read(entry.get("text", ""), text, component)

    def source(self, component: str) -> str:
        """The file that the version was read from; empty if none had it."""
        entry = self.components.get(component)
        return read(entry.get("from", ""), text, component) if isinstance(entry, dict) else ""


def _version(data: object) -> str:
    return text(table(data).get("version"))


@record
class LeftFile(File):
    """A file that an image should not contain; its size is unreadable if this user has no access."""

    bytes = Field(integer)


@record
class Keys(Reported):
    """The keys that can log in to an account; those restricted to a command do not count."""

    keys = Field(integer)
    commands = Field(integer)


@record
class OwnFile(File):
    """A file that must be unique to each machine, and when it was written, in seconds since 1970."""

    written = Field(integer)


@record
class Plugin(Reported):
    """A Slurm plug-in from plugstack.conf: `required` or `optional`; its size is None if it is missing."""

    need = Field(text)
    path = Field(text)
    bytes = Field(optional(integer))


def _errors(data: object) -> tuple[str, ...]:
    return texts(table(data).get("errors"))


def _keys(data: object) -> Mapping[str, Keys]:
    return {user: Keys({"keys": entry, "commands": entry} | entry) for user, entry in table(data).items()}


def _paths(data: object) -> Mapping[str, str]:
    return {name: text(path) for name, path in table(data).items()}


def _sizes(data: object) -> tuple[int, ...]:
    if not isinstance(data, list):
        raise TypeError
    return tuple(read(entry, integer, "its size") for entry in data)


@record
class Image(Reported):
    """The contents of a machine image.

    `cloud_init` are the errors of cloud-init's last run, None where it left no result; `under_way` the signs of a
    package manager that has not ended; `programs` where the programs that run containers lie; `toolkit` the size of
    the NVIDIA container toolkit's configuration, if it is there; `enroot` whether /etc/enroot is there; `first_boot`
    when cloud-init first ran on this instance, None where it left no mark; `identity` the files that are each machine's
    own; `modules` which kernel modules are installed for the kernel that runs.
    """

    cloud_init = Field(optional(_errors))
    left = Field(objects_as(LeftFile))
    keys = Field(_keys)
    under_way = Field(texts)
    programs = Field(_paths)
    toolkit = Field(_sizes)
    enroot = Field(boolean)
    plugins = Field(objects_as(Plugin))
    first_boot = Field(optional(integer))
    identity = Field(objects_as(OwnFile))
    modules = Field(texts)


PLAIN = ("/etc/environment", "/etc/nccl.conf")  # files of variables in which nothing is expanded
_DEFAULT = Pattern(r"\$\{\w{1,100}:?[-=]([^${}`]*)\}")
_COMMENT = Pattern(r"[ \t]#")


def _uncommented(data: object) -> str:
    """A value without the comment that pam_env cuts off in /etc/environment, and NCCL behind a number."""
    value = text(data)
    comment = _COMMENT.search(value)
    return value[: comment.start()].strip().strip("\"'") if comment else value


LOCAL = ("lo", "docker")  # reach no other node: NCCL uses them only if nothing else is left, or they are named


@record
class Variable(Reported):
    """One environment variable, and the file that sets it."""

    name = Field(text)
    written = Field(_uncommented, "value")
    file = Field(text)
    line = Field(integer)
    conditional = Field(boolean)  # it is set in some cases only, which the file alone does not show

    @property
    def value(self) -> str:
        """Its value; of `${NAME:-value}` in a script the one that jobs get unless they set it. Raises Incomplete."""
        is_script = readings(self, "file")[0].get("file") not in (None, *PLAIN)
        default = _DEFAULT.fullmatch(self.written) if is_script else None
        return str(default[1]) if default else self.written

    @property
    def where(self) -> str:
        """`/etc/environment line 3`. Raises Incomplete."""
        return f"{self.file} line {self.line}"


def chosen_interfaces(value: str, names: Iterable[str]) -> tuple[str, ...]:
    """The node's interfaces that NCCL_SOCKET_IFNAME lets NCCL use.

    It is a list of prefixes; `=` before it makes them whole names, `^` before that excludes them (source:
    NCCL's user guide).
    """
    excludes, chosen = value.startswith("^"), _chosen(value, names)
    return tuple(name for name in chosen if not name.startswith(LOCAL)) if excludes else chosen


def chosen_adapters(value: str, names: Iterable[str]) -> tuple[str, ...]:
    """The node's InfiniBand or RoCE devices that NCCL_IB_HCA lets NCCL use: names as above, or with ports.

    With `^`, a device is not excluded if only one of its ports is named.
    """
    entries = [entry for entry in value.lstrip("^=").split(",") if entry]
    if value.startswith("^"):
        entries = [entry for entry in entries if ":" not in entry]
    marks = value[: len(value) - len(value.lstrip("^="))]
    named = ",".join(entry.partition(":")[0] for entry in entries)
    return _chosen(marks + named, names) if named else tuple(names)


def _chosen(value: str, names: Iterable[str]) -> tuple[str, ...]:
    excludes = value.startswith("^")
    value = value.removeprefix("^")
    is_exact = value.startswith("=")
    wanted = [word for word in value.removeprefix("=").split(",") if word]

    def is_named(name: str) -> bool:
        return any(name == word if is_exact else name.startswith(word) for word in wanted)

    return tuple(name for name in names if is_named(name) != excludes)
