"""What the clients of file servers wrote to the kernel log."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.kernel_log.wording import FILE_SERVERS, require_whole_log, say
from clusterproof.plugins.evidence.node import Node

pytestmark = [
    mark.storage,
    mark.preflight,
    mark.prolog,
    mark.hyperpod_performance_debugger("B"),
]


@evidence("journalctl -k -b | grep -E 'Lustre(Error)?:|nfs: server'")
def test_file_system_errors(node: Node) -> None:
    """File server connections.

    Lustre's client lost a target or was evicted by it, or an NFS server does not respond, and no later line says that
    it is back. Whatever reads or writes there hangs or fails. Connections that recovered are ignored.

    Remedy (restore service): Check whether the file server can be reached (lctl ping, showmount). Mount it again;
    reboot if it hangs.
    """
    say(node, "storage.file_system_errors", "every file server to be back")
    require_whole_log(node, FILE_SERVERS)
