"""Mounted file systems, each touched in a child process: /proc/self/mountinfo, /etc/fstab."""

from __future__ import annotations

import re

from clusterproof.plugins.probe.reading import Node
from clusterproof.plugins.probe.touching import touch_all

PSEUDO = frozenset(
    "autofs bdev binder binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs fuse.lxcfs fuse.portal "
    "fuse.gvfsd-fuse fusectl hugetlbfs mqueue nfsd nsfs overlay proc pstore ramfs resctrl rootfs rpc_pipefs securityfs "
    "selinuxfs squashfs swap sysfs tracefs".split()
)
NETWORK = re.compile(r"lustre|nfs|cifs|smb|ceph|gpfs|beegfs|wekafs|glusterfs|9p|virtiofs|fuse\.(?!lxcfs)|fuse$|efs|afs$")
