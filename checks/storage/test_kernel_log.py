"""What the clients of file servers wrote to the kernel log."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern
from clusterproof.plugins.evidence.kernel_log.events_host import FileServer
from clusterproof.plugins.evidence.kernel_log.wording import in_list, require_whole_log, when
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

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
    lost: dict[str, FileServer] = {}
    for event in node.kernel_events:
        if not isinstance(event, FileServer):
            continue
        if event.is_back:
            lost = {name: last for name, last in lost.items() if not event.brings_back(name)}
        else:
            lost[event.server] = event
    words = f"{in_list(_words(event, node) for event in lost.values())}; expected every file server to be back"
    if lost and node.kernel_lines_cut:
        concern(words)  # a server that came back since is in the newest lines, which are whole
    require_whole_log(node, of_file_servers=True)
    if lost:
        concern(words)


def _words(event: FileServer, node: Node) -> str:
    since = f", {when(event.time, node)}" if event.time is not None else ""
    return f"{event.server} {event.words}{since}"
