"""Typed facts on what a job's programs can use where they run."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.fact import collected_as
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    boolean,
    integer,
    objects_as,
    optional,
    readings,
    require,
    table,
    text,
    texts,
)

_DRIVERS = ("nvidia", "neuron", "infiniband_verbs", "gdrdrv")
_OF_NOBODY = ("mem", "no device")  # the driver of /dev/null, and the word for a file that is not a device
_VERSION = re.compile(r"\.so\.(\d{1,5}(?:\.\d{1,5}){1,3})$")


@record
class DeviceFile(Reported):
    """A device file, and the errno from opening it; empty if it opens."""

    path = Field(text)
    refused = Field(text)
    driver = Field(text)  # the driver that registered its number in the kernel; empty if none or unknown

    @property
    def is_of_its_driver(self) -> bool:
        """Whether `refused` comes from its driver; an image may have a folder or a stale number in its place."""
        return self.driver.startswith(_DRIVERS)

    @property
    def is_refused(self) -> bool:
        """Whether it is known not to open, or replaced by another file, such as /dev/null, which does open."""
        reading, _ = readings(self, "refused", "driver")
        return bool(reading.get("refused")) or reading.get("driver") in _OF_NOBODY


@record
class LoadedLibrary(Reported):
    """A library as found by the loader."""

    path = Field(text)  # with every link followed; empty where it does not load
    mount = Field(text)  # the mount point above it, or above the one that it does not fit to
    unread = Field(text)  # why what the loader says is nothing against it; empty where it is
    text = Field(text)  # what the loader says; empty where it loads
    is_there = Field(boolean)

    @property
    def version(self) -> str:
        """The version in its file name; empty if there is none."""
        match = _VERSION.search(self.path)
        return match[1] if match else ""

    @property
    def origin(self) -> str:
        """Where it comes from: the *image*, or the *runtime*, which mounts the node's files."""
        return "image" if self.mount in ("", "/") else "runtime"


def _libraries(data: object) -> Mapping[str, LoadedLibrary]:
    return {name: LoadedLibrary(table(entry)) for name, entry in table(data).items()}


def _index(data: object) -> int:
    return -1 if data == -1 else integer(data)


def _numbers(data: object) -> Mapping[str, int]:
    return {name: integer(number) for name, number in table(data).items()}


@record
class Container(Reported):
    """The device files and libraries available to a job."""

    devices = Field(objects_as(DeviceFile))
    verbs = Field(texts)  # names of the kernel's RDMA devices, uverbs0 and so on
    gpus_asked = Field(_numbers)  # by the name of the variable with the number
    cuda_begins_with = Field(optional(_index))  # from CUDA_VISIBLE_DEVICES; -1: no GPU
    libraries = Field(_libraries)

    def library(self, name: str) -> LoadedLibrary:
        """A library that is looked for on every node. Raises Incomplete if it was not reported."""
        if name not in self.libraries:
            raise Incomplete(f"{name} was not reported", cause="not reported by the node")
        return self.libraries[name]

    def opened(self, paths: re.Pattern[str]) -> tuple[list[str], dict[str, DeviceFile]]:
        """Of these device files, those that open, and the others by path, as far as both are known.

        Raises Incomplete.
        """
        named = {read["path"]: device for device in self.devices if (read := readings(device, "path")[0])}
        devices = {path: device for path, device in named.items() if paths.fullmatch(path)}
        refused = {path: device for path, device in devices.items() if device.is_refused}
        return [path for path in devices if path not in refused], refused

    def require_paths(self) -> None:
        """Raise Incomplete if the path of a device file is unread: then none is known not to be there."""
        require(why for device in self.devices for why in readings(device, "path")[1])

    @property
    def gpus_due(self) -> int | None:
        """How many GPUs the job asked for; None if that is unknown here. Raises Incomplete."""
        return min(self.gpus_asked.values(), default=None)


container = collected_as("container", Container)
