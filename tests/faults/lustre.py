"""Lustre: its servers, its tuning, its space."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from clusterproof.plugins.core.policy import Policy
from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.testbed.image import NodeImage
from tests.testbed.lustre import cached, imported, llite, mdt, ost
from tests.testbed.node import with_file, with_tool


def without_lustre_files(image: NodeImage) -> NodeImage:
    """The Lustre file system is mounted, and its client's state cannot be read."""
    kept = "fs/lustre/version"
    tree = {path: entry for path, entry in image.sys.items() if path == kept or not path.startswith("fs/lustre/")}
    return replace(image, sys=tree)


def with_ost_used(image: NodeImage, percent: int, index: int = 2) -> NodeImage:
    """One OST is this full."""
    total = 1_000_000_000
    free = str(total * (100 - percent) // 100)
    numbers = {"kbytestotal": str(total), "kbytesfree": free, "kbytesavail": free}
    return reduce(lambda node, file: with_file(node, ost(index, file), f"{numbers[file]}\n"), numbers, image)


def untuned(image: NodeImage) -> NodeImage:
    """A Lustre client with default settings."""
    defaults = {"max_rpcs_in_flight": "8", "max_dirty_mb": "32"}
    for index in range(4):
        for file, value in defaults.items():
            image = with_file(image, ost(index, file), f"{value}\n")
    for file, value in {"max_rpcs_in_flight": "8", "max_mod_rpcs_in_flight": "7"}.items():
        image = with_file(image, mdt(0, file), f"{value}\n")
    for path, value in {
        "/sys/module/ptlrpc/parameters/ptlrpcd_per_cpt_max": "8",
        "/sys/module/ksocklnd/parameters/credits": "256",
    }.items():
        image = with_file(image, path, f"{value}\n")
    return image


LUSTRE = (
    Fault(
        "a Lustre client that is not healthy",
        lambda image: with_file(
            image, "/sys/fs/lustre/health_check", "device oyuutbev reported unhealthy\nNOT HEALTHY\n"
        ),
        {"storage.lustre_health": FAIL},
        "NOT HEALTHY; expected healthy",
    ),
    Fault(
        "an OST that is not connected",
        lambda image: with_file(image, ost(3, "import"), imported("oyuutbev-OST0003", "DISCONN")),
        {"storage.lustre_clients": FAIL},
        "oyuutbev-OST0003: osc is DISCONN; expected FULL or IDLE",
    ),
    Fault(
        "an MDT that evicted this node",
        lambda image: with_file(image, mdt(0, "import"), imported("oyuutbev-MDT0000", "EVICTED")),
        {"storage.lustre_clients": FAIL},
        "oyuutbev-MDT0000: mdc is EVICTED",
    ),
    Fault(
        "a Lustre file system of which nothing can be read",
        without_lustre_files,
        {
            "storage.lustre_clients": INCOMPLETE,
            "storage.lustre_health": INCOMPLETE,
            "storage.lustre_ost_fill": INCOMPLETE,
            "storage.lustre_mdt_inodes": INCOMPLETE,
            "storage.lustre_tuning": INCOMPLETE,
            "storage.lustre_client_cache": INCOMPLETE,
        },
        "/fsx is Lustre, and its client does not report all its servers",
    ),
    Fault(
        "one OST that is full",
        lambda image: with_ost_used(image, 97),
        {"storage.lustre_ost_fill": FAIL},
        "oyuutbev-OST0002: 97 % full; expected less than 95 %",
    ),
    Fault(
        "one OST that is full before a job, which all nodes have alike",
        lambda image: with_ost_used(image, 97),
        {"storage.lustre_ost_fill": CONCERN},
        "oyuutbev-OST0002: 97 % full",
        occasion="prolog",
    ),
    Fault(
        "one OST that fills up",
        lambda image: with_ost_used(image, 88),
        {"storage.lustre_ost_fill": CONCERN},
        "oyuutbev-OST0002: 88 % full; expected less than 85 %",
    ),
    Fault(
        "an OST that is inactive",
        lambda image: with_file(image, ost(1, "active"), "0\n"),
        {"storage.lustre_ost_fill": FAIL},
        "oyuutbev-OST0001: inactive on this node",
    ),
    Fault(
        "an MDT without inodes",
        lambda image: with_file(image, mdt(0, "filesfree"), "140000\n"),
        {"storage.lustre_mdt_inodes": FAIL},
        "oyuutbev-MDT0000: 99 % of its inodes used",
    ),
    Fault(
        "an MDT with few inodes left",
        lambda image: with_file(image, mdt(0, "filesfree"), "1400000\n"),
        {"storage.lustre_mdt_inodes": CONCERN},
        "90 % of its inodes used; expected less than 85 %",
    ),
    Fault(
        "an MDT without inodes before a job, which all nodes have alike",
        lambda image: with_file(image, mdt(0, "filesfree"), "140000\n"),
        {"storage.lustre_mdt_inodes": CONCERN},
        "99 % of its inodes used",
        occasion="prolog",
    ),
    Fault(
        "an MDT without space",
        lambda image: reduce(
            lambda node, file: with_file(node, mdt(0, file), "360000\n"), ("kbytesfree", "kbytesavail"), image
        ),
        {"storage.lustre_mdt_inodes": FAIL},
        "oyuutbev-MDT0000: 99 % full; expected less than 95 %",
    ),
    Fault(
        "a Lustre client that nobody has tuned",
        untuned,
        {"storage.lustre_tuning": CONCERN},
        "osc_max_rpcs_in_flight 8, osc_max_dirty_mb 32, mdc_max_rpcs_in_flight 8, mdc_max_mod_rpcs_in_flight 7",
    ),
    Fault(
        "a Lustre client that keeps its locks for long",
        lambda image: with_file(
            image, "/sys/fs/lustre/ldlm/namespaces/oyuutbev-OST0001-osc-ffff8e2d4b1c7000/lru_max_age", "3900000\n"
        ),
        {"storage.lustre_tuning": CONCERN},
        "lru_max_age 3900000 ms; expected at most 600000",
    ),
)
CACHE = (
    Fault(
        "a Lustre client that may cache little",
        lambda image: with_file(image, llite("max_cached_mb"), cached(2048)),
        {"storage.lustre_client_cache": CONCERN},
        "max_cached_mb of /fsx (oyuutbev) is 2048: the client caches at most 2048 MiB with ",
    ),
    Fault(
        "an older Lustre client that may cache little",
        lambda image: with_file(image, llite("max_cached_mb"), "0\n"),
        {"storage.lustre_client_cache": CONCERN},
        "max_cached_mb of /fsx (oyuutbev) is 0: the client caches at most 0 MiB with ",
    ),
)
STRIPED = """#!/bin/sh
echo "$3"
echo 'stripe_count:  {} stripe_size:   1048576 pattern:       0 stripe_offset: -1'
"""
SAVING = Policy(checkpoints=("/fsx/checkpoints",))
STRIPING = (
    Fault(
        "a checkpoint folder on one OST",
        lambda image: with_tool(image, "lfs", STRIPED.format(1)),
        {"storage.lustre_striping": CONCERN},
        "stripe count below 2 on /fsx/checkpoints; expected at least 2, or -1 for all",
        policy=SAVING,
    ),
    Fault(
        "a checkpoint folder that is not there",
        lambda image: with_tool(image, "lfs", "#!/bin/sh\necho 'error opening: No such file or directory'; exit 2\n"),
        {"storage.lustre_striping": INCOMPLETE},
        "lfs getstripe of /fsx/checkpoints says",
        policy=SAVING,
    ),
    Fault(
        "a checkpoint folder and no lfs",
        lambda image: image,
        {"storage.lustre_striping": INCOMPLETE},
        "no lfs on PATH",
        policy=SAVING,
    ),
)
FAULTS = LUSTRE + CACHE + STRIPING
