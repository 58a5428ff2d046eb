"""Processors and memory: lscpu, /proc/cpuinfo, cpupower, /proc/meminfo; sysfs of frequencies and of EDAC."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from clusterproof.plugins.evidence.host.collect_cpus import MAX_KINDS, POLICY
from clusterproof.plugins.evidence.host.collect_memory import CORRUPTED, KEYS
from clusterproof.plugins.evidence.parsing import CaptureError, Form, integer, sections, short

GHZ_IN_KHZ, MHZ_IN_KHZ = 1_000_000, 1_000

# On a terminal rows are indented below what they are of.
_LSCPU = re.compile(r"^[ \t]{0,8}([A-Z][\w() /.-]{2,40}?):[ \t]{1,80}(\S.{0,400})$", re.MULTILINE)
_NUMA = re.compile(r"NUMA node(\d{1,4}) CPU\(s\)")


def is_lscpu(text: str) -> bool:
    """Whether this is the output of lscpu."""
    return bool(re.search(r"^[ \t]{0,8}On-line CPU\(s\) list:[ \t]{1,80}\d", text, re.MULTILINE))


def read_lscpu(text: str) -> Mapping[str, object]:
    """The collector `cpus`, with the number of CPUs of `boot` and the NUMA nodes of `memory`."""
    rows: dict[str, str] = {}
    for key, value in _LSCPU.findall(text):
        rows.setdefault(key, value.strip())  # of big and little cores the first
    cpus: dict[str, Any] = {"online": rows["On-line CPU(s) list"]} if "On-line CPU(s) list" in rows else {}
    if "Architecture" in rows:
        cpus["machine"] = rows["Architecture"]
    if (integer(rows.get("Thread(s) per core", "")) or 0) > 1:
        cpus["smt"] = "on"  # with one thread it may be off, or the processor has none
    offline = rows.get("Off-line CPU(s) list", "")
    may_have_more = rows.get("Architecture", "").startswith("ppc")  # threads per core, of which some are off on purpose
    is_known = rows.get("Architecture") in ("x86_64", "aarch64")
    if is_known and "smt" not in cpus and 0 < _count(offline) < _count(cpus.get("online", "")):
        cpus["smt"] = ""  # not off: that would take every second CPU
    if "online" in cpus and (not offline or ("smt" in cpus and not may_have_more)):
        cpus["present"] = f"{cpus['online']},{offline}" if offline else cpus["online"]
    cpus["info"] = _info(rows)
    numa = [{"node": int(match[1]), "cpus": value} for key, value in rows.items() if (match := _NUMA.fullmatch(key))]
    collected: dict[str, object] = {"cpus": cpus}
    online = _count(rows.get("On-line CPU(s) list", ""))
    if online:
        collected["boot"] = {"cpus": online}
    return {**collected, "memory": {"numa": numa}} if numa else collected


def _info(rows: Mapping[str, str]) -> dict[str, object]:
    sockets, cores = (integer(rows.get(key, "")) for key in ("Socket(s)", "Core(s) per socket"))
    info: dict[str, object] = {"model": short(rows.get("Model name", ""))}
    if rows.get("Microcode version"):
        info["microcode"] = [short(rows["Microcode version"])]
    if sockets:
        info["sockets"] = sockets
    return {**info, "cores": sockets * cores} if sockets and cores else info


def _count(ranges: str) -> int:
    """How many `0-3,8` are; 0 where it is no such list."""
    if not re.fullmatch(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?){0,2000}", ranges):
        return 0
    parts = [part.split("-") for part in ranges.split(",")]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in parts)


_OF_CPUINFO = re.compile(r"^processor[ \t]{0,4}: \d{1,5}$", re.MULTILINE)


def read_cpuinfo(text: str) -> Mapping[str, object]:
    """What the collector `cpus` reports about the processors."""
    blocks = [_block(block) for block in text.split("\n\n")[:8192]]
    blocks = [block for block in blocks if "processor" in block]
    microcode = sorted({block["microcode"] for block in blocks if block.get("microcode")})
    info: dict[str, object] = {
        "model": next((block["model name"] for block in blocks if block.get("model name")), ""),
        "microcode": microcode[:MAX_KINDS],
        "sockets": len({block["physical id"] for block in blocks if "physical id" in block}),
        "cores": len({(block.get("physical id"), block["core id"]) for block in blocks if "core id" in block}),
    }
    return {"cpus": {"info": info}, "boot": {"cpus": len(blocks)}} if blocks else {"cpus": {"info": info}}


def _block(text: str) -> dict[str, str]:
    rows = (line.partition(":") for line in text.split("\n"))
    return {key.strip(): value.strip()[:200] for key, separator, value in rows if separator}


_ANALYZED = re.compile(r"^analyzing CPU (\d{1,5}):", re.MULTILINE)
_DRIVER = re.compile(r"^\s{1,4}driver: (\S{1,40})", re.MULTILINE)
_LIMITS = re.compile(r"^\s{1,4}hardware limits: .{1,40}? - (\d{1,5}(?:\.\d{1,3})?) (GHz|MHz)", re.MULTILINE)
_POLICY = re.compile(r"frequency should be within .{1,40}? and (\d{1,5}(?:\.\d{1,3})?) (GHz|MHz)")
_GOVERNOR = re.compile(r'The governor "([a-z]{1,30})"')


def is_cpupower(text: str) -> bool:
    """Whether this is the output of `cpupower frequency-info`."""
    return bool(_GOVERNOR.search(text) and (_ANALYZED.search(text) or _DRIVER.search(text)))


def read_cpupower(text: str) -> Mapping[str, object]:
    """The frequency policies of the collector `cpus`. Raises CaptureError."""
    policies = [_policy(head[1], rest) for head, rest in sections(_ANALYZED, text)]
    if not policies:
        raise CaptureError("cpupower does not say of which CPU")
    return {"cpus": {"policies": _with_counts(policies)}}


def _policy(cpu: str, text: str) -> dict[str, object]:
    driver, governor = _DRIVER.search(text), _GOVERNOR.search(text)
    policy: dict[str, object] = {"first": f"policy{cpu}"}
    if driver:
        policy["driver"] = driver[1]
    if governor:
        policy["governor"] = governor[1]
    for key, limit in (("max_khz", _LIMITS.search(text)), ("limit_khz", _POLICY.search(text))):
        if limit:
            policy[key] = round(float(limit[1]) * (GHZ_IN_KHZ if limit[2] == "GHz" else MHZ_IN_KHZ))
    return policy


_SYSFS = re.compile(
    r"^/sys/devices/system/cpu/(?:cpu(\d{1,5})/cpufreq|cpufreq/policy(\d{1,5}))/(scaling_driver|scaling_governor|"
    r"cpuinfo_max_freq|scaling_max_freq):(.{0,80})$",
    re.MULTILINE,
)


def read_sysfs(text: str) -> Mapping[str, object]:
    """The frequency policies of the collector `cpus`."""
    names = {file: key for key, file in POLICY.items()}
    policies: dict[str, dict[str, object]] = {}
    for cpu, policy, file, value in _SYSFS.findall(text)[:100_000]:
        first = f"policy{policy or cpu}"
        number = integer(value.strip())
        policies.setdefault(first, {"first": first})[names[file]] = value.strip() if number is None else number
    return {"cpus": {"policies": _with_counts(policies.values())}}


def _with_counts(policies: Iterable[Mapping[str, object]]) -> list[dict[str, Any]]:
    """Equal policies once, with their number."""
    kinds: list[dict[str, Any]] = []
    for policy in policies:
        same = [kind for kind in kinds if _settings_of(kind) == _settings_of(policy)]
        if same:
            same[0]["count"] += 1
        elif len(kinds) < MAX_KINDS:
            kinds.append({**policy, "count": 1})
    return kinds


def _settings_of(policy: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in policy.items() if key not in ("first", "count")}


_MEMINFO = re.compile(r"^([A-Z][\w()]{2,30}):\s{1,30}(\d{1,15})(?: kB)?[ \t]*$", re.MULTILINE)
_OF_MEMINFO = re.compile(r"^MemTotal:\s{1,30}\d{1,15} kB", re.MULTILINE)


def read_meminfo(text: str) -> Mapping[str, object]:
    """The collector `memory`, and the memory of `boot`."""
    rows = {key: int(value) for key, value in _MEMINFO.findall(text)}
    memory: dict[str, object] = {key: rows[word] for key, word in KEYS.items() if word in rows}
    if CORRUPTED in rows:
        memory["corrupted_kib"] = rows[CORRUPTED]
    if {"Hugepagesize", "HugePages_Total", "HugePages_Free"} <= rows.keys():
        pages = {"size_kib": rows["Hugepagesize"], "pages": rows["HugePages_Total"], "free": rows["HugePages_Free"]}
        memory["huge_pages"] = [pages]
    return {"memory": memory, "boot": {"memory_kib": rows["MemTotal"]}} if "MemTotal" in rows else {"memory": memory}


_ARC = re.compile(r"^(?:c_min|size)[ \t]{1,80}\d{1,2}[ \t]{1,20}\d{1,18}[ \t]*$", re.MULTILINE)


def is_arcstats(text: str) -> bool:
    """Whether this is the content of ZFS's arcstats, or the lines of it that count."""
    return "c_min" in text and len(_ARC.findall(text)) > 1


def read_arcstats(text: str) -> Mapping[str, object]:
    """What ZFS caches, of the collector `memory`."""
    return {"memory": {"arcstats": "\n".join(line.rstrip() for line in _ARC.findall(text)[:2])}}


_TRANSPARENT = re.compile(r"^(?:always|\[always\]) (?:madvise|\[madvise\]) (?:never|\[never\])$", re.MULTILINE)


def read_transparent(text: str) -> Mapping[str, object]:
    """How transparent huge pages are used, of the collector `memory`. Raises CaptureError."""
    mode = _TRANSPARENT.search(text)
    if not mode:
        raise CaptureError("no mode of transparent huge pages")
    return {"memory": {"transparent": mode[0]}}


MAX_CONTROLLER_FILES = 1024
_EDAC = re.compile(
    r"^/sys/devices/system/edac/mc/(mc\d{1,4})/(ce_count|ue_count|mc_name|seconds_since_reset):(.{0,100})$",
    re.MULTILINE,
)
_EDAC_KEYS = {"ce_count": "corrected", "ue_count": "uncorrected", "seconds_since_reset": "counted_s"}


def read_edac(text: str) -> Mapping[str, object]:
    """The memory controllers of the collector `edac`, without their modules."""
    controllers: dict[str, dict[str, Any]] = {}
    for name, file, value in _EDAC.findall(text)[:MAX_CONTROLLER_FILES]:
        controller = controllers.setdefault(name, {"name": name, "modules": []})
        if file == "mc_name":
            controller["type"] = short(value.strip())
        elif value.strip().isdecimal():
            controller[_EDAC_KEYS[file]] = int(value)
        else:
            controller[_EDAC_KEYS[file]] = {"error": "EINVAL", "text": short(value)}
    return {"edac": {"controllers": list(controllers.values())}}


FORMS = (
    Form("lscpu", is_lscpu, read_lscpu),
    Form("/proc/cpuinfo", _OF_CPUINFO.search, read_cpuinfo, 55),
    Form("cpupower frequency-info", is_cpupower, read_cpupower, 40),
    Form("sysfs cpufreq", _SYSFS.search, read_sysfs),
    Form("transparent_hugepage/enabled", _TRANSPARENT.search, read_transparent),
    Form("/proc/meminfo", _OF_MEMINFO.search, read_meminfo, 55),
    Form("arcstats", is_arcstats, read_arcstats),
    Form("sysfs edac", _EDAC.search, read_edac),
)
