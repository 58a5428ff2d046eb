"""Logs that fill their file system."""

from __future__ import annotations

from clusterproof.plugins.core.policy import Policy
from tests.faults.fault import CONCERN, INCOMPLETE, Fault
from tests.testbed.node import with_tmpfs

MIB = 1024 * 1024
SMALL = Policy(thresholds={"logs.least_concern_gib": 8 / 1024})  # this machine need not hold 10 GiB of logs
MUCH_USED = Policy(thresholds={**SMALL.thresholds, "logs.used_concern_percent": 0})  # this machine's disk may be empty
NOISE = f"""
mkdir /srv/log && rm -r /var/log && ln -s /srv/log /var/log
dd if=/dev/zero of=/var/log/syslog bs={MIB} count=20 2>/dev/null
dd if=/dev/zero of=/var/log/syslog.1 bs={MIB} count=10 2>/dev/null
echo ready
"""
ENTRIES = """
mkdir /var/log/pods
dd if=/dev/zero of=/var/image bs=1M count=20 2>/dev/null
for ten in 0 1 2 3 4 5 6 7 8 9; do (cd /var/log/pods; seq -f "$ten.%g" 1000 | xargs touch); done
echo ready
"""

FAULTS = (
    Fault(
        "logs that take half of their file system",
        lambda image: with_tmpfs(image, "/srv", "64m"),
        {"storage.log_growth": CONCERN},
        "/var/log takes 30 MiB, 47 % of its file system; the largest files are /var/log/syslog (20 MiB), /var/log/sys",
        beside=NOISE,
        policy=SMALL,
    ),
    Fault(
        "more logs than are looked at",
        lambda image: image,
        {"storage.log_growth": INCOMPLETE},
        "/var/log has more than 8,192 entries, or its disk is slow",
        beside=ENTRIES,
        policy=MUCH_USED,
    ),
)
