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
    table,
    text,
    texts,
)

_DRIVERS = ("nvidia", "neuron", "infiniband_verbs", "gdrdrv")
_OF_NOBODY = ("mem", "no device")  # the driver of /dev/null, and what is no device at all
_VERSION = re.compile(r"\.so\.(\d{1,5}(?:\.\d{1,5}){1,3})$")


@record
class DeviceFile(Reported):
    """A device file, and the errno when opening it; empty if it opens."""

    path = Field(text)
    refused = Field(text)
    driver = Field(text)  # who registered its number, as the kernel says; empty where nobody did, or that is unknown

    @property
    def is_of_its_driver(self) -> bool:
        """Whether what it says is its driver's word; an image may hold a folder or a stale number in its place."""
        return self.driver.startswith(_DRIVERS)

    @property
    def is_refused(self) -> bool:
        """Whether it is known not to open, or that another file is in its place, as /dev/null: that opens as well."""
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
        """The version in its file's name; empty where that has none."""
        match = _VERSION.search(self.path)
        return match[1] if match else ""

    @property
    def whose(self) -> str:
        """Who brought it: the *image*, or the *runtime*, which mounts what is of the node."""
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
    gpus_asked = Field(_numbers)  # by the variable that names the number
    cuda_begins_with = Field(optional(_index))  # by CUDA_VISIBLE_DEVICES; -1: with none
    libraries = Field(_libraries)

    def library(self, name: str) -> LoadedLibrary:
        """One that is looked for everywhere. Raises Incomplete where nothing is reported of it."""
        if name not in self.libraries:
            raise Incomplete(f"{name} was not reported", cause="not reported by the node")
        return self.libraries[name]

    def opened(self, paths: re.Pattern[str]) -> tuple[list[str], dict[str, DeviceFile]]:
        """The device files of these paths that open, as far as that is known, and the others by path.

        Raises Incomplete.
        """
        devices = {device.path: device for device in self.devices if paths.fullmatch(device.path)}
        refused = {path: device for path, device in devices.items() if device.is_refused}
        return [path for path in devices if path not in refused], refused

    @property
    def gpus_due(self) -> int | None:
        """How many GPUs the job asked for; None where nothing here says so. Raises Incomplete."""
        return min(self.gpus_asked.values(), default=None)


container = collected_as("container", Container)
