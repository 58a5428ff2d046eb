"""What is installed on a node, in which version, and what its image carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, flag, objects, optional, read, table, text, texts, whole
from clusterproof.plugins.evidence.software.collect_versions import PACKAGES

MAX_COMPONENTS = 64


def _versions(told: object) -> Mapping[str, object]:
    """What was told of each component: an object with its version and where that is from, or an error object."""
    return dict(list(table(told).items())[:MAX_COMPONENTS])


@record
class Library:
    """A file by the name that the loader looks for."""

    told: Mapping[str, Any]

    path = Field(text)
    bytes = Field(whole)

    @property
    def dangles(self) -> bool:
        """Whether it is a link that leads nowhere."""
        size = self.told.get("bytes")
        return isinstance(size, dict) and size.get("error") == "ENOENT"


def _libraries(told: object) -> Mapping[str, tuple[Library, ...]]:
    return {name: tuple(Library(entry) for entry in objects(found)) for name, found in table(told).items()}


@record
class Software:
    """The components of a node, by name.

    `container` is what kind of container they are of, empty for a host; `toolkits` are the CUDA toolkits in folders of
    their own.
    """

    told: Mapping[str, Any]

    container = Field(text)
    components = Field(_versions)
    toolkits = Field(texts)
    libraries = Field(_libraries)

    @property
    def packages(self) -> None:
        """Nothing, where the package database could be read or there is none. Raises Incomplete."""
        if "packages" in self.components:
            read(self.components["packages"], _version, "the package database")

    @property
    def untold(self) -> tuple[str, ...]:
        """The components that may be there and were not told, because the package database could not be read."""
        if "packages" not in self.components:
            return ()
        return tuple(component for component in PACKAGES if component not in self.components)

    def version(self, component: str) -> str | None:
        """A component's version; None where the node does not have it. Raises Incomplete where it cannot be read."""
        if component not in self.components:
            return None
        return read(self.components[component], _version, component)

    def names_no_version(self, component: str) -> str:
        """What was read where the file that should tell a component's version does not; else empty."""
        told = self.components.get(component)
        if not isinstance(told, dict) or told.get("error") != "EINVAL":
            return ""
        return read(told.get("text", ""), text, component)

    def source(self, component: str) -> str:
        """Which file told the version; empty where none did."""
        told = self.components.get(component)
        return read(told.get("from", ""), text, component) if isinstance(told, dict) else ""


def _version(told: object) -> str:
    return text(table(told).get("version"))


@record
class LeftFile:
    """A file that an image should not carry; of one that this user may not look at, the size cannot be read."""

    told: Mapping[str, Any]

    path = Field(text)
    bytes = Field(whole)


@record
class Keys:
    """The keys that may log in to an account; those that may only run a command are of no use to a person."""

    told: Mapping[str, Any]

    keys = Field(whole)
    commands = Field(whole)


@record
class OwnFile:
    """A file that must be each machine's own, and when it was written, in seconds since 1970."""

    told: Mapping[str, Any]

    path = Field(text)
    written = Field(whole)


@record
class Plugin:
    """A plug-in that Slurm loads by plugstack.conf: `required` or `optional`; its size is None where it is absent."""

    told: Mapping[str, Any]

    need = Field(text)
    path = Field(text)
    bytes = Field(optional(whole))


def _errors(told: object) -> tuple[str, ...]:
    return texts(table(told).get("errors"))


def _left(told: object) -> tuple[LeftFile, ...]:
    return tuple(LeftFile(entry) for entry in objects(told))


def _own(told: object) -> tuple[OwnFile, ...]:
    return tuple(OwnFile(entry) for entry in objects(told))


def _plugins(told: object) -> tuple[Plugin, ...]:
    return tuple(Plugin(entry) for entry in objects(told))


def _keys(told: object) -> Mapping[str, Keys]:
    return {user: Keys(read(entry, table, f"the keys of {user}")) for user, entry in table(told).items()}


def _paths(told: object) -> Mapping[str, str]:
    return {name: text(path) for name, path in table(told).items()}


def _sizes(told: object) -> tuple[int, ...]:
    if not isinstance(told, list):
        raise TypeError
    return tuple(read(entry, whole, "its size") for entry in told)


@record
class Image:
    """What a machine image carries.

    `cloud_init` are the errors of cloud-init's last run, None where it left no result; `under_way` the signs of a
    package manager that has not ended; `programs` where the programs that run containers lie; `toolkit` the size of
    the NVIDIA container toolkit's configuration, if it is there; `enroot` whether /etc/enroot is there; `first_boot`
    when cloud-init first ran on this instance, None where it left no mark; `identity` the files that are each machine's
    own; `modules` which kernel modules are installed for the kernel that runs.
    """

    told: Mapping[str, Any]

    cloud_init = Field(optional(_errors))
    left = Field(_left)
    keys = Field(_keys)
    under_way = Field(texts)
    programs = Field(_paths)
    toolkit = Field(_sizes)
    enroot = Field(flag)
    plugins = Field(_plugins)
    first_boot = Field(optional(whole))
    identity = Field(_own)
    modules = Field(texts)
