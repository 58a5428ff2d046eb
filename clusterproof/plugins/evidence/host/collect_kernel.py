"""The running and installed kernels, a pending reboot, and the kernel's clock."""

from __future__ import annotations

import struct

from clusterproof.plugins.agent.reading import Node, error

CLOCK = "/sys/devices/system/clocksource/clocksource0"
MARKER = "/run/reboot-required"
LEAVES_MARKER = (  # what writes it
    "/usr/share/update-notifier/notify-reboot-required",
    "/etc/kernel/postinst.d/unattended-upgrades",
)
MAX_KERNELS = 64
MAX_PACKAGES = 16
TIMEX = struct.Struct("@Illlli")  # the beginning of struct timex: modes, offset, frequency, errors, status
TIMEX_BYTES = 512  # room for all of it
UNSYNCHRONISED = 0x40


def read(node: Node) -> object:
    """Versions, the reboot marker, the clock source, and how far the clock may be off."""
    return {
        "running": node.text("/proc/sys/kernel/osrelease"),
        "modules": _installed(node, "/lib/modules", ""),
        "images": _installed(node, "/boot", "vmlinuz-"),
        "reboot_required": node.exists(MARKER),
        "reboot_packages": _packages(node),
        "leaves_marker": any(node.exists(path) for path in LEAVES_MARKER),
        "clocksource": node.text(f"{CLOCK}/current_clocksource", absent=""),
        "clocksources": node.text(f"{CLOCK}/available_clocksource", absent=""),
        "clock": _clock(node),
    }


def _installed(node: Node, folder: str, prefix: str) -> object:
    """The versions that a folder holds: kernels in /boot, their modules in /lib/modules."""
    try:
        names = [name for name in node.names(folder) if name.startswith(prefix)]
    except OSError as problem:
        return error(problem)
    if not prefix:  # what is left of a removed kernel is a folder without this
        names = [name for name in names if node.exists(f"{folder}/{name}/modules.order")]
    return [name[len(prefix) :] for name in names[-MAX_KERNELS:]]


def _packages(node: Node) -> list[str]:
    text = node.text(f"{MARKER}.pkgs", absent="")
    return sorted(set(text.split()))[:MAX_PACKAGES] if isinstance(text, str) else []


def _clock(node: Node) -> object:
    """adjtimex's maximum error in s, which grows until the clock is corrected; changes nothing."""
    node.at("adjtimex")
    try:
        import ctypes

        timex = ctypes.create_string_buffer(TIMEX_BYTES)
        library = ctypes.CDLL(None, use_errno=True)
        if library.adjtimex(timex) < 0:
            return error(OSError(ctypes.get_errno(), "", "adjtimex"))
    except (ImportError, OSError, AttributeError) as problem:
        return {"error": "ENOSYS", "text": f"adjtimex: {problem}"[:200]}
    _, _, _, max_error_us, _, status = TIMEX.unpack_from(timex)
    return {"max_error_s": round(max_error_us / 1e6, 6), "synchronised": not status & UNSYNCHRONISED}
