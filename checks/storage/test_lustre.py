"""Lustre: is the client healthy, connected and tuned, and is there room on every target?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern, incomplete, not_applicable
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.lustre.facts import LustreClient, LustreTarget
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

pytestmark = [mark.storage, mark.preflight, mark.hyperpod_performance_debugger("B")]

KIB_IN_GIB = 1024 * 1024


@mark.prolog
@evidence("lctl get_param health_check")
def test_lustre_health(node: Node) -> None:
    """Lustre client health.

    Remedy (reset or reboot): Read the kernel log for LustreError and LBUG. A client that hit a bug needs a reboot.
    """
    try:
        health = node.lustre.health
    except Absent as absent:
        incomplete(f"{node.lustre_mounts[0].path} is Lustre; {absent}")
    assert health == "healthy", f"{health[:200]}; expected healthy"


@mark.prolog
@evidence("lctl get_param mgc.*.import mdc.*.import osc.*.import | grep -E 'target|state:'")
def test_lustre_clients(lustre_client: LustreClient) -> None:
    """Lustre server connections.

    Anything that touches a file on that server hangs until the connection is back. One that has not been used for a
    while is idle, which is no fault.

    Remedy (restore service): Check whether the server's port 988 can be reached (security group, network), then look at
    the file system's state. A client that was evicted reconnects when it is used; mount again if it does not.
    """
    state = lustre_client.state
    assert lustre_client.is_connected, f"{lustre_client.kind} is {state}; expected FULL or IDLE"


@mark.prolog
@evidence("lfs df")
def test_lustre_ost_fill(ost: LustreTarget, node: Node) -> None:
    """Lustre OST usage.

    A file lies on few OSTs: one that is full stops writers, however empty the file system as a whole is. All nodes then
    see the same, and any user can fill one: before a job it is a concern.

    Remedy (clean up): Move large files off it (lfs find --ost, lfs migrate), stripe them wider, or enlarge the file
    system.
    """
    assert ost.active, "inactive on this node; expected active"
    used = ost.used_percent
    fail, worry = node.threshold("lustre.used_fail_percent"), node.threshold("lustre.used_concern_percent")
    assert used < fail or node.drains, f"{used:.0f} % full; expected less than {fail:.0f} %"
    if used >= worry:
        concern(f"{used:.0f} % full; expected less than {worry:.0f} %")


@mark.prolog
@evidence("lfs df -i")
def test_lustre_mdt_inodes(mdt: LustreTarget, node: Node) -> None:
    """Lustre MDT inodes.

    With no inodes left no file can be created, however much space there is. All nodes then see the same, and any user
    can take the last one: before a job it is a concern.

    Remedy (clean up): Remove small files, or pack them; enlarge the file system's metadata.
    """
    assert mdt.active, "inactive on this node; expected active"
    used = mdt.inodes_used_percent
    fail, worry = node.threshold("lustre.used_fail_percent"), node.threshold("lustre.used_concern_percent")
    assert used < fail or node.drains, f"{used:.0f} % of its inodes used; expected less than {fail:.0f} %"
    if used >= worry:
        concern(f"{used:.0f} % of its inodes used; expected less than {worry:.0f} %")


@evidence("lfs getstripe -d FOLDER, of each checkpoint folder that the policy names")
def test_lustre_striping(node: Node) -> None:
    """Lustre striping.

    A file lies on as many OSTs as its folder's stripe count says. With one, a large checkpoint is as slow as one OST,
    and fills it.

    Remedy (fix configuration): Stripe new files of the folder wider, as with lfs setstripe -c -1 FOLDER; existing files
    stay as they are.
    """
    data = {folder.path: folder for folder in node.checkpoint_folders}
    if not node.policy.checkpoints:
        not_applicable("the policy names no checkpoint folder")
    unread = ", ".join(path for path in node.policy.checkpoints if path not in data)
    if unread:
        incomplete(f"the node was not asked of {unread}; expected evidence gathered with this policy")
    folders = [folder for folder in data.values() if folder.type == "lustre"]
    if not folders:
        not_applicable("no checkpoint folder of the policy lies on Lustre")
    least = node.threshold("lustre.checkpoint_stripes")
    narrow = [folder.path for folder in folders if 0 <= folder.stripe_count < least]
    if narrow and len(node.osts) >= least:
        concern(f"stripe count below {least:.0f} on {', '.join(narrow)}; expected at least {least:.0f}, or -1 for all")


@mark.ami
@evidence("lctl get_param osc.*.max_rpcs_in_flight osc.*.max_dirty_mb mdc.*.max_*rpcs_in_flight ldlm.*.*.lru_max_age")
def test_lustre_tuning(node: Node) -> None:
    """Lustre client tuning.

    The client's defaults suit a few CPUs. FSx recommends other values for clients with much memory and with many vCPUs;
    larger ones are no concern.

    Remedy (fix configuration): Set them as FSx's performance tips say, in the lifecycle script: lctl set_param is lost
    at the next mount.
    """
    path = node.lustre_mounts[0].path
    if node.is_outside_ec2:
        not_applicable(f"the advice is FSx's, and {path} is mounted outside EC2")
    wrong = [*_of_much_memory(node), *_of_many_vcpus(node)]
    if wrong:
        concern(f"{', '.join(observed for observed, _ in wrong)}; expected {', '.join(right for _, right in wrong)}")


Wrong = Iterator[tuple[str, str]]


def _of_much_memory(node: Node) -> Wrong:
    """What clients with much memory should set differently."""
    if node.boot.memory_kib <= node.threshold("lustre.much_memory_gib") * KIB_IN_GIB:
        return
    ages_ms = [client.lru_max_age_ms for client in node.lustre_clients if client.kind in ("osc", "mdc")]
    most_ms = node.threshold("lustre.lru_max_age_ms")
    if max(ages_ms, default=0) > most_ms:
        yield f"lru_max_age {max(ages_ms)} ms", f"at most {most_ms:.0f}"


def _of_many_vcpus(node: Node) -> Wrong:
    """What clients with many vCPUs should set differently."""
    if node.boot.cpus <= node.threshold("lustre.many_vcpus"):
        return
    oscs = [client for client in node.lustre_clients if client.kind == "osc"]
    mdcs = [client for client in node.lustre_clients if client.kind == "mdc"]
    yield from _low(node, "lustre.osc_max_rpcs_in_flight", (osc.max_rpcs_in_flight for osc in oscs))
    yield from _low(node, "lustre.osc_max_dirty_mb", (osc.max_dirty_mb for osc in oscs))
    yield from _low(node, "lustre.mdc_max_rpcs_in_flight", (mdc.max_rpcs_in_flight for mdc in mdcs))
    yield from _low(node, "lustre.mdc_max_mod_rpcs_in_flight", (mdc.max_mod_rpcs_in_flight for mdc in mdcs))
    yield from _low(node, "lustre.ptlrpcd_per_cpt_max", (node.lustre.parameter("ptlrpcd_per_cpt_max"),))
    yield from _low(node, "lustre.credits", (node.lustre.parameter("credits"),))


def _low(node: Node, name: str, values: Iterable[float | None]) -> Wrong:
    """Values lower than advised, as `osc_max_dirty_mb 32`: the one that most have. None is no value."""
    least = node.threshold(name)
    low = Counter(value for value in values if value is not None and value < least)
    if low:
        yield f"{name.partition('.')[2]} {low.most_common(1)[0][0]:g}", f"{least:.0f}"
