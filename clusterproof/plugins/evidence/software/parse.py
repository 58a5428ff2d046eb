"""Captured versions: dpkg -l, rpm -qa, modinfo, and files that hold a version."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.evidence.field import UNCAPTURED
from clusterproof.plugins.evidence.parsing import CaptureError, Form, short
from clusterproof.plugins.evidence.software.collect_versions import FILES, LIBRARIES, PACKAGES

UNKNOWN = {"error": UNCAPTURED, "text": "no file that was captured shows this version"}
COMPONENTS = frozenset({*(name for name, *_ in FILES), *LIBRARIES.values(), *PACKAGES, "cuda_compat"})
MODULES = {"nvidia": "driver", "efa": "efa", "gdrdrv": "gdrcopy", "lustre": "lustre", "mlx5_core": "ofed"}
MODULES["neuron"] = "neuron_driver"

_DPKG = re.compile(r"^[ih]i  ([a-z0-9][a-z0-9.+-]{1,100})(?::\w{1,20})?[ \t]{1,200}(\S{1,100})[ \t]", re.MULTILINE)
_RPM = re.compile(
    r"^([A-Za-z0-9][\w.+-]{1,100}?)-(\d[\w.+~^:]{0,60}-[\w.+~^]{1,60})\.(?:x86_64|aarch64|noarch)[ \t]*$", re.MULTILINE
)
_MODULE = re.compile(r"^filename:[ \t]{1,20}\S{0,300}/(\w{1,40})\.ko\S{0,8}[ \t]*$", re.MULTILINE)
_MODULE_VERSION = re.compile(r"^version:[ \t]{1,20}(\S{1,60})", re.MULTILINE)
_TITLED = (  # files whose contents begin with a known text
    (
        "driver",
        re.compile(r"^NVRM version: NVIDIA UNIX .{0,60}?Kernel Module.{0,40}? (\d{1,4}\.[\d.]{1,12})", re.MULTILINE),
    ),
    ("efa_installer", re.compile(r"^# EFA installer version: {0,4}(\d\S{0,30})", re.MULTILINE)),
)


def components(versions: Mapping[str, str], source: str) -> dict[str, object]:
    """The collector `versions` with these components; others are unknown, not absent, as nobody looked for them."""
    entries = {name: {"version": version, "from": source} for name, version in versions.items()}
    return {"versions": {"components": {name: entries.get(name, UNKNOWN) for name in sorted(COMPONENTS)}}}


def is_packages(text: str) -> bool:
    """Whether this is the output of `dpkg -l` or `rpm -qa`, or a part of it."""
    return bool(_DPKG.search(text) or _RPM.search(text))


def read_packages(text: str) -> Mapping[str, object]:
    """The components that have packages of their own. Raises CaptureError if none is listed."""
    dpkg = dict(_DPKG.findall(text))
    installed = dpkg or dict(_RPM.findall(text))
    versions = {
        component: installed[package]
        for component, wanted in PACKAGES.items()
        for package in reversed(wanted.split())
        if package in installed
    }
    if not versions:
        raise CaptureError("no package that matters is in the list")
    return components(versions, "dpkg" if dpkg else "rpm")


def is_modinfo(text: str) -> bool:
    """Whether this is the output of modinfo of a module that has a version."""
    return bool(_MODULE.search(text) and _MODULE_VERSION.search(text))


def read_modinfo(text: str) -> Mapping[str, object]:
    """The component for a kernel module. Raises CaptureError."""
    module, version = _MODULE.search(text), _MODULE_VERSION.search(text)
    component = MODULES.get(module[1].replace("-", "_")) if module else None
    if not component or not version:
        raise CaptureError("modinfo of a module that is no component")
    return components({component: short(version[1])}, "modinfo")


def is_titled(text: str) -> bool:
    """Whether this is the content of /proc/driver/nvidia/version or /opt/amazon/efa_installed_packages."""
    return any(form.search(text) for _, form in _TITLED)


def read_titled(text: str) -> Mapping[str, object]:
    """The components in files that name themselves."""
    versions = {name: match[1] for name, form in _TITLED if (match := form.search(text))}
    return components(versions, "a file of its own")


FORMS = (
    Form("version files", is_titled, read_titled, 55),
    Form("dpkg -l, rpm -qa", is_packages, read_packages, 45),
    Form("modinfo", is_modinfo, read_modinfo),
)
