"""What is installed on a node, in which version, what its image carries, and what it sets in environments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.fact import collected_as
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    every,
    flag,
    objects,
    optional,
    read,
    readings,
    table,
    text,
    texts,
    whole,
)
from clusterproof.plugins.evidence.software.collect_versions import PACKAGES

MAX_COMPONENTS = 64


def _versions(data: object) -> Mapping[str, object]:
    """What was reported for each component: an object with its version and where that is from, or an error object."""
    known = table(data)
    return known if len(known) <= MAX_COMPONENTS else dict(list(known.items())[:MAX_COMPONENTS])


@record
class File(Reported):
    """A file of the node."""

    path = Field(text)

    @property
    def label(self) -> str:
        """Its path; words for one that is unknown."""
        return str(readings(self, "path")[0].get("path", "a file"))


@record
class Library(File):
    """A file by the name that the loader looks for."""

    bytes = Field(whole)

    @property
    def dangles(self) -> bool:
        """Whether it is a link that leads nowhere."""
        size = self.data.get("bytes")
        return isinstance(size, dict) and size.get("error") == "ENOENT"


def _libraries(data: object) -> Mapping[str, tuple[Library, ...]]:
    return {name: tuple(Library(entry) for entry in objects(found)) for name, found in table(data).items()}


@record
class Software(Reported):
    """The components of a node, by name.

    `container` is what kind of container they are of, empty for a host; `toolkits` are the CUDA toolkits in folders of
    their own.
    """

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
    def unreported(self) -> tuple[str, ...]:
        """The components that may be there and were not reported, because the package database could not be read."""
        if "packages" not in self.components:
            return ()
        return tuple(component for component in PACKAGES if component not in self.components)

    def version(self, component: str) -> str | None:
        """A component's version; None where the node does not have it. Raises Incomplete where it cannot be read."""
        if component not in self.components:
            return None
        return read(self.components[component], _version, component)

    def names_no_version(self, component: str) -> str:
        """What was read where the file that should have a component's version does not; else empty."""
        data = self.components.get(component)
        if not isinstance(data, dict) or data.get("error") != "EINVAL":
            return ""
        return read(data.get("text", ""), text, component)

    def source(self, component: str) -> str:
        """Which file the version is from; empty where none had it."""
        data = self.components.get(component)
        return read(data.get("from", ""), text, component) if isinstance(data, dict) else ""


def _version(data: object) -> str:
    return text(table(data).get("version"))


@record
class LeftFile(File):
    """A file that an image should not carry; of one that this user may not look at, the size cannot be read."""

    bytes = Field(whole)


@record
class Keys(Reported):
    """The keys that may log in to an account; those that may only run a command are of no use to a person."""

    keys = Field(whole)
    commands = Field(whole)


@record
class OwnFile(File):
    """A file that must be each machine's own, and when it was written, in seconds since 1970."""

    written = Field(whole)


@record
class Plugin(Reported):
    """A plug-in that Slurm loads by plugstack.conf: `required` or `optional`; its size is None where it is absent."""

    need = Field(text)
    path = Field(text)
    bytes = Field(optional(whole))


def _errors(data: object) -> tuple[str, ...]:
    return texts(table(data).get("errors"))


def _keys(data: object) -> Mapping[str, Keys]:
    return {user: Keys({"keys": entry, "commands": entry} | entry) for user, entry in table(data).items()}


def _paths(data: object) -> Mapping[str, str]:
    return {name: text(path) for name, path in table(data).items()}


def _sizes(data: object) -> tuple[int, ...]:
    if not isinstance(data, list):
        raise TypeError
    return tuple(read(entry, whole, "its size") for entry in data)


@record
class Image(Reported):
    """What a machine image carries.

    `cloud_init` are the errors of cloud-init's last run, None where it left no result; `under_way` the signs of a
    package manager that has not ended; `programs` where the programs that run containers lie; `toolkit` the size of
    the NVIDIA container toolkit's configuration, if it is there; `enroot` whether /etc/enroot is there; `first_boot`
    when cloud-init first ran on this instance, None where it left no mark; `identity` the files that are each machine's
    own; `modules` which kernel modules are installed for the kernel that runs.
    """

    cloud_init = Field(optional(_errors))
    left = Field(every(LeftFile))
    keys = Field(_keys)
    under_way = Field(texts)
    programs = Field(_paths)
    toolkit = Field(_sizes)
    enroot = Field(flag)
    plugins = Field(every(Plugin))
    first_boot = Field(optional(whole))
    identity = Field(every(OwnFile))
    modules = Field(texts)


NEVER_BY_ITSELF = ("lo", "docker")  # NCCL takes them only where nothing else is left, or where they are named


@record
class Variable(Reported):
    """One variable that a file of the node sets."""

    name = Field(text)
    value = Field(text)
    file = Field(text)
    line = Field(whole)
    conditional = Field(flag)  # it is set in some cases only, which the file alone does not show

    @property
    def where(self) -> str:
        """`/etc/environment line 3`. Raises Incomplete."""
        return f"{self.file} line {self.line}"


def chosen_interfaces(value: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those of a node's interfaces that NCCL_SOCKET_IFNAME lets NCCL use.

    It is a list of prefixes; `=` before it makes them whole names, `^` before that excludes them (source:
    NCCL's user guide).
    """
    excludes = value.startswith("^")
    value = value.removeprefix("^")
    is_exact = value.startswith("=")
    wanted = [word for word in value.removeprefix("=").split(",") if word]

    def is_named(name: str) -> bool:
        return any(name == word if is_exact else name.startswith(word) for word in wanted)

    if excludes:
        return tuple(name for name in names if not is_named(name) and not name.startswith(NEVER_BY_ITSELF))
    return tuple(name for name in names if is_named(name))


_DRIVERS = ("nvidia", "neuron", "infiniband_verbs", "gdrdrv")
_OF_NOBODY = ("mem", "no device")  # the driver of /dev/null, and what is no device at all
_VERSION = re.compile(r"\.so\.(\d{1,5}(?:\.\d{1,5}){1,3})$")


@record
class DeviceFile(Reported):
    """A device file, and the errno by which it refuses to be opened; empty where it opens."""

    path = Field(text)
    refused = Field(text)
    driver = Field(text)  # who registered its number, as the kernel says; empty where nobody did, or that is unknown

    @property
    def is_of_its_driver(self) -> bool:
        """Whether what it says is its driver's word; an image may hold a folder or a stale number in its place."""
        return self.driver.startswith(_DRIVERS)

    @property
    def is_another(self) -> bool:
        """Whether another file stands in its place, as /dev/null where a runtime hides it: that opens as well."""
        return self.driver in _OF_NOBODY


@record
class LoadedLibrary(Reported):
    """A library as the loader finds it."""

    path = Field(text)  # with every link followed; empty where it does not load
    mount = Field(text)  # the mount point above it, or above the one that it does not fit to
    unread = Field(text)  # why what the loader says is nothing against it; empty where it is
    text = Field(text)  # what the loader says; empty where it loads
    is_there = Field(flag)

    @property
    def version(self) -> str:
        """The version in its file's name; empty where that has none."""
        found = _VERSION.search(self.path)
        return found[1] if found else ""

    @property
    def whose(self) -> str:
        """Who brought it: the *image*, or the *runtime*, which mounts what is of the node."""
        return "image" if self.mount in ("", "/") else "runtime"


def _libraries_of_container(data: object) -> Mapping[str, LoadedLibrary]:
    return {name: LoadedLibrary(table(entry)) for name, entry in table(data).items()}


@record
class Container(Reported):
    """The device files and libraries that a job gets."""

    devices = Field(every(DeviceFile))
    verbs = Field(texts)  # names of the kernel's RDMA devices, uverbs0 and so on
    gpus_asked = Field(table)  # by the variable that names the number
    libraries = Field(_libraries_of_container)

    def opened(self, paths: re.Pattern[str]) -> tuple[list[str], dict[str, DeviceFile]]:
        """The device files of these paths that open, and the others by path. Raises Incomplete."""
        found = {device.path: device for device in self.devices if paths.fullmatch(device.path)}
        refused = {path: device for path, device in found.items() if device.refused or device.is_another}
        return [path for path in found if path not in refused], refused

    @property
    def gpus_due(self) -> int | None:
        """How many GPUs the job asked for; None where nothing here says so. Raises Incomplete."""
        return min(map(whole, self.gpus_asked.values()), default=None)


container = collected_as("container", Container)
