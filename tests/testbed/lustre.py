"""A Lustre client on a node with FSx for Lustre, and its faults."""

from __future__ import annotations

from dataclasses import replace

from tests.testbed.image import Content, NodeImage, text_of
from tests.testbed.sysfs import Tree

FILE_SYSTEM, INSTANCE = "oyuutbev", "ffff8e2d4b1c7000"
OSTS, MDTS = 4, 1
MANAGEMENT = "MGC10.1.71.197@tcp"
OPTIONS = "rw,checksum,flock,nouser_xattr,lruresize,lazystatfs"
# Linux gives this device number to no file system here; of two mounts with one number, one is not reported.
MOUNT = f"910 1 0:1048061 / /fsx rw,noatime - lustre 10.1.71.197@tcp:/oyuutbev {OPTIONS}"
FSTAB = "10.1.71.197@tcp:/oyuutbev\t/fsx\tlustre\tdefaults,noatime,flock,_netdev\t0 0\n"
OST_KIB, OST_USED = 1_168_000_000, 0.46
IMPORT = """import:
    name: {name}
    target: {target}_UUID
    state: {state}
    connect_flags: [ write_grant, server_lock, version, request_portal ]
    import_flags: [ replayable, pingable, connect_tried ]
    connection:
       failover_nids: [ "10.1.71.197@tcp" ]
       current_connection: "10.1.71.197@tcp"
       connection_attempts: 1
       generation: 1
       in-progress_invalidations: 0
"""


CACHED_MIB = 1_032_192  # half of the memory of a p5, as Lustre sets it
CACHED = """users: 4
max_cached_mb: {limit}
used_mb: 1024
unused_mb: {unused}
reclaim_count: 0
"""
READ_AHEAD = """snapshot_time             1764547200.123456789 secs.nsecs
start_time                1764460800.000000000 secs.nsecs
elapsed_time              86400.123456789 secs.nsecs
hits                      900000 samples [pages]
misses                    100000 samples [pages]
zero size window          3 samples [pages]
"""


def client_files() -> Tree:
    """/sys of a node with a loaded Lustre client and nothing mounted."""
    return {
        "fs/lustre/health_check": "healthy\n",
        "fs/lustre/version": "2.15.6\n",
        "module/ptlrpc/initstate": "live\n",
        "module/ptlrpc/parameters/ptlrpcd_per_cpt_max": "32\n",
        "module/ksocklnd/initstate": "live\n",
        "module/ksocklnd/parameters/credits": "2560\n",
    }


def mounted_files() -> Tree:
    """Further files in /sys once the file system is mounted, tuned as FSx advises."""
    tree: Tree = {}
    for index in range(OSTS):
        name = f"{FILE_SYSTEM}-OST{index:04x}-osc-{INSTANCE}"
        free = int(OST_KIB * (1 - OST_USED))
        tree |= _target("osc", name, f"{FILE_SYSTEM}-OST{index:04x}", "IDLE" if index else "FULL")
        tree |= _numbers("osc", name, max_rpcs_in_flight=32, max_dirty_mb=64)
        tree |= _numbers("osc", name, kbytestotal=OST_KIB, kbytesfree=free, kbytesavail=free - 20_000)
        tree |= _numbers("osc", name, filestotal=4_600_000, filesfree=4_100_000)
    for index in range(MDTS):
        name = f"{FILE_SYSTEM}-MDT{index:04x}-mdc-{INSTANCE}"
        tree |= _target("mdc", name, f"{FILE_SYSTEM}-MDT{index:04x}", "FULL")
        tree |= _numbers("mdc", name, max_rpcs_in_flight=64, max_mod_rpcs_in_flight=50)
        tree |= _numbers("mdc", name, kbytestotal=36_000_000, kbytesfree=35_900_000, kbytesavail=35_900_000)
        tree |= _numbers("mdc", name, filestotal=14_000_000, filesfree=12_900_000)
    here = f"fs/lustre/llite/{FILE_SYSTEM}-{INSTANCE}"
    tree |= {f"{here}/max_cached_mb": cached(CACHED_MIB), f"{here}/read_ahead_stats": READ_AHEAD}
    tree[f"fs/lustre/mgc/{MANAGEMENT}/import"] = IMPORT.format(name=MANAGEMENT, target="MGS", state="FULL")
    return tree


def with_lustre(image: NodeImage) -> NodeImage:
    """Mount FSx for Lustre on /fsx."""
    files = image.files | {"/etc/fstab": text_of(image.files["/etc/fstab"]) + FSTAB}
    return replace(image, sys=image.sys | mounted_files(), mounted=(*image.mounted, MOUNT), files=files)


def with_mount(image: NodeImage, path: str, line: str) -> NodeImage:
    """Set the mountinfo line of the file system on that path."""
    others = tuple(each for each in image.mounted if each.split(" ")[4] != path)
    return replace(image, mounted=(*others, line))


def with_mount_words(image: NodeImage, path: str, old: str, new: str) -> NodeImage:
    """Replace words in that path's mountinfo line."""
    line = next(each for each in image.mounted if each.split(" ")[4] == path)
    assert old in line
    return with_mount(image, path, line.replace(old, new))


def cached(limit_mib: int) -> str:
    """The text of max_cached_mb."""
    return CACHED.format(limit=limit_mib, unused=limit_mib - 1024)


def llite(file: str) -> str:
    """The path of a file about the mounted file system."""
    return f"/sys/fs/lustre/llite/{FILE_SYSTEM}-{INSTANCE}/{file}"


def ost(index: int, file: str) -> str:
    """The path of a file about one OST."""
    return f"/sys/fs/lustre/osc/{FILE_SYSTEM}-OST{index:04x}-osc-{INSTANCE}/{file}"


def mdt(index: int, file: str) -> str:
    """The path of a file about one MDT."""
    return f"/sys/fs/lustre/mdc/{FILE_SYSTEM}-MDT{index:04x}-mdc-{INSTANCE}/{file}"


def imported(target: str, state: str) -> str:
    """The text of an import file."""
    return IMPORT.format(name=target, target=target, state=state)


def _target(kind: str, name: str, target: str, state: str) -> Tree:
    here = f"fs/lustre/{kind}/{name}"
    ages: dict[str, Content] = {f"fs/lustre/ldlm/namespaces/{name}/lru_max_age": "600000\n"}
    return ages | {f"{here}/import": imported(target, state), f"{here}/active": "1\n"}


def _numbers(kind: str, name: str, **values: int) -> Tree:
    return {f"fs/lustre/{kind}/{name}/{key}": f"{value}\n" for key, value in values.items()}
