"""Lustre: health, connections, tuning and cache of the client, and free space on every target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern, concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.field import each, known, readings
from clusterproof.plugins.evidence.group import Values, majority_of
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.storage.facts import lustre_path
from clusterproof.plugins.evidence.storage.facts_lustre import LustreCache, LustreClient, LustreTarget

pytestmark = [mark.storage, mark.preflight, mark.hyperpod_performance_debugger("B")]

KIB_IN_MIB = 1024
KIB_IN_GIB = 1024 * 1024


@mark.prolog
@evidence("lctl get_param health_check")
def test_lustre_health(node: Node) -> None:
    """Lustre client health.

    Remedy (reset or reboot): Search the kernel log for LustreError and LBUG (journalctl -k | grep -E
    'LustreError|LBUG'). Reboot the node after an LBUG.
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

    Anything that touches a file on that server hangs until the connection is back. A connection that has not been used
    for a while is IDLE, which is normal. Targets that an administrator has deactivated are evaluated by the checks of
    OSTs and MDTs.

    Remedy (restore service): Check whether TCP port 988 of the server can be reached (nc -zv SERVER 988; security
    group, network), then the file system's state. An evicted client reconnects at its next access; remount if it does
    not.
    """
    if lustre_client.is_deactivated:
        not_applicable("deactivated by an administrator")
    kind = known(lambda: lustre_client.kind, "the connection")
    assert lustre_client.is_connected, f"{kind} is {lustre_client.state}; expected FULL or IDLE"


@mark.prolog
@evidence("lfs df")
def test_lustre_ost_fill(ost: LustreTarget, node: Node) -> None:
    """Lustre OST usage.

    A file lies on a few OSTs: a full one stops its writers, however empty the rest of the file system is. All nodes see
    the same, and any user can fill an OST, so before a job it is a concern. An OST that its server reports as degraded
    is a concern too, and so is one that is inactive on most nodes of the group, as a retired one is.

    Remedy (clean up): Move large files off the OST (lfs find PATH --ost INDEX, lfs migrate), stripe them wider, or add
    storage.
    """
    require_answer(node, ost)
    evaluate_use(node, ost.used_percent, "full")


def require_answer(node: Node, target: LustreTarget) -> None:
    """Fail if this node alone cannot use a target; a concern if no other may either, or its server reports a fault."""
    if not known(lambda: target.active, True):
        usual = majority_of(node, INACTIVE, _inactive, known(lambda: target.label, ""), None)
        is_retired = usual is not None and usual.value == INACTIVE
        fail_if(not (is_retired or node.drains), "inactive on this node; expected active")
        concern(f"inactive {usual.how_many if usual and is_retired else 'on this node'}; expected active, or removed")
    says = known(lambda: target.says, None)
    assert not says, f"lfs df reports {says}; expected its free space"
    with part:
        concern_if(target.faults, f"lfs df marks it {target.faults}; expected no such flag")


INACTIVE = "inactive"


def _inactive(node: Node) -> Values:
    """Whether each target is active or not, by its name."""
    read = (readings(target, "label", "active")[0] for target in node.lustre_targets)
    return {row["label"]: "active" if row["active"] else INACTIVE for row in read if len(row) == 2}


def evaluate_use(node: Node, used: float, what: str) -> None:
    """The verdict on how much of a target is in use, in percent."""
    fail, worry = node.threshold("lustre.used_fail_percent"), node.threshold("lustre.used_concern_percent")
    assert used < fail or node.drains, f"{used:.0f} % {what}; expected less than {fail:.0f} %"
    concern_if(used >= worry, f"{used:.0f} % {what}; expected less than {worry:.0f} %")


@mark.prolog
@evidence("lfs df -i; lfs df")
def test_lustre_mdt_inodes(mdt: LustreTarget, node: Node) -> None:
    """Lustre MDT inodes.

    Without free inodes, or free space on the MDT, no file can be created, however much space the OSTs have. All nodes
    see the same, and any user can take the last inode, so before a job it is a concern.

    Remedy (clean up): Remove small files or pack them into archives, or increase the file system's metadata capacity.
    """
    require_answer(node, mdt)
    with part:
        evaluate_use(node, mdt.inodes_used_percent, "of its inodes used")
    evaluate_use(node, mdt.used_percent, "full")


@evidence("lfs getstripe -d FOLDER, of each checkpoint folder that the policy names")
def test_lustre_striping(node: Node) -> None:
    """Lustre striping.

    A file is spread over as many OSTs as its folder's stripe count. With a stripe count of 1, a large checkpoint is as
    slow as one OST, and fills it.

    Remedy (fix configuration): Stripe new files wider (lfs setstripe -c -1 FOLDER). Existing files stay as they are.
    """
    by_path = dict(each(node.checkpoint_folders, lambda folder: (folder.path, folder)))
    if not node.policy.checkpoints:
        not_applicable("the policy names no checkpoint folder")
    with part:
        unread = ", ".join(path for path in node.policy.checkpoints if path not in by_path)
        if unread:
            incomplete(f"the striping of {unread} was not collected; expected evidence collected with this policy")
    types = [*each(by_path.values(), lambda folder: (folder, folder.type))]
    folders = [folder for folder, type_ in types if type_ == "lustre"]
    if not folders:
        not_applicable("none of the policy's checkpoint folders is on Lustre")
    least = node.threshold("lustre.checkpoint_stripes")
    counts = each(folders, lambda folder: (folder.path, folder.stripe_count))
    narrow = [path for path, stripes in counts if 0 <= stripes < least]
    if narrow and known(lambda: len(node.osts), least) >= least:
        concern(f"stripe count below {least:.0f} on {', '.join(narrow)}; expected at least {least:.0f}, or -1 for all")


@mark.ami
@evidence(
    "lctl get_param osc.*.max_rpcs_in_flight osc.*.max_dirty_mb mdc.*.max_*rpcs_in_flight ldlm.*.*.lru_max_age; "
    "grep . /sys/module/ptlrpc/parameters/ptlrpcd_per_cpt_max /sys/module/ksocklnd/parameters/credits"
)
def test_lustre_tuning(node: Node) -> None:
    """Lustre client tuning.

    The client's defaults suit machines with a few CPUs. FSx recommends other values for clients with much memory or
    many vCPUs. Larger values are fine.

    Remedy (fix configuration): Set them in the lifecycle script (lctl set_param), as FSx's performance tips describe:
    they are lost at the next mount. ptlrpcd_per_cpt_max and credits are options of the modules ptlrpc and ksocklnd: set
    them in /etc/modprobe.d, unmount, lustre_rmmod, and mount again.
    """
    path = known(lambda: node.lustre_mounts[0].path, "the file system")
    if known(lambda: node.is_outside_ec2, False):
        not_applicable(f"the recommendation is for FSx, but {path} is mounted outside EC2")
    clients = [*each(node.lustre_clients, lambda client: (client.kind, client))]
    wrong = [*known(lambda: _kept_too_long(node, clients), ()), *_too_low(node, clients)]
    seen, right = ", ".join(observed for observed, _ in wrong), ", ".join(right for _, right in wrong)
    concern_if(wrong, f"{seen}; expected {right}")


LOW = {  # what clients with many vCPUs should have, by its threshold: of which connections, or of a kernel module
    "lustre.osc_max_rpcs_in_flight": ("osc", "max_rpcs_in_flight"),
    "lustre.osc_max_dirty_mb": ("osc", "max_dirty_mb"),
    "lustre.mdc_max_rpcs_in_flight": ("mdc", "max_rpcs_in_flight"),
    "lustre.mdc_max_mod_rpcs_in_flight": ("mdc", "max_mod_rpcs_in_flight"),
    "lustre.ptlrpcd_per_cpt_max": ("", "ptlrpcd_per_cpt_max"),
    "lustre.credits": ("", "credits"),
}
Clients = Sequence[tuple[str, LustreClient]]  # each with its kind


def _kept_too_long(node: Node, clients: Clients) -> Sequence[tuple[str, str]]:
    """For how long a client with much memory keeps locks, if that is too long, and the advised time."""
    if node.boot.memory_kib <= node.threshold("lustre.much_memory_gib") * KIB_IN_GIB:
        return ()
    of_servers = [client for kind, client in clients if kind in ("osc", "mdc")]
    longest_ms = max(each(of_servers, lambda client: client.lru_max_age_ms), default=0)
    most_ms = node.threshold("lustre.lru_max_age_ms")
    return [(f"lru_max_age {longest_ms} ms", f"at most {most_ms:.0f}")] if longest_ms > most_ms else ()


def _too_low(node: Node, clients: Clients) -> Iterator[tuple[str, str]]:
    """Values below those advised for many vCPUs, as `osc_max_dirty_mb 32`: the value of most connections."""
    if known(lambda: node.boot.cpus, 0) <= node.threshold("lustre.many_vcpus"):
        return
    for threshold, (kind, name) in LOW.items():
        least, values = node.threshold(threshold), _values(node, clients, kind, name)
        low = Counter(value for value in values if value is not None and value < least)
        if low:
            yield f"{threshold.partition('.')[2]} {low.most_common(1)[0][0]:g}", f"{least:.0f}"


def _values(node: Node, clients: Clients, kind: str, name: str) -> Iterator[float | None]:
    if not kind:
        return each([name], node.lustre.parameter)
    return each([client for of, client in clients if of == kind], lambda client: getattr(client, name))


@evidence("lctl get_param llite.*.max_cached_mb llite.*.read_ahead_stats; grep MemTotal /proc/meminfo")
def test_lustre_client_cache(node: Node) -> None:
    """Lustre client cache.

    What a job reads again comes from the client's page cache, as far as max_cached_mb lets it grow. Data that does not
    fit is read from the servers again in each epoch. Lustre's default is half of the memory, or three quarters.

    Remedy (fix configuration): Raise it on the MGS for all clients (lctl set_param -P llite.*.max_cached_mb=MIB), or in
    the lifecycle script without -P, where it is lost at the next mount.
    """
    path = lustre_path(node)
    caches = node.lustre.caches
    if path and not caches:
        incomplete(f"{path} is Lustre, and its client reports no cache")
    memory_mib = node.boot.memory_kib / KIB_IN_MIB
    least_percent = node.threshold("lustre.cached_concern_percent")
    least_mib = memory_mib * least_percent / 100
    for cache, limit_mib in each(caches, lambda cache: (cache, cache.limit_mib)):
        concern_if(
            limit_mib < least_mib,
            f"max_cached_mb of {_mounted_as(node, cache)} is {limit_mib}: the client caches at most {limit_mib} MiB"
            f" with {memory_mib:.0f} MiB of memory{_read_ahead(cache)}; expected at least {least_mib:.0f}"
            f" ({least_percent:g} % of the memory)",
        )


def _mounted_as(node: Node, cache: LustreCache) -> str:
    """Where the file system is mounted, and its name, as far as they are known."""
    name = readings(cache, "file_system")[0].get("file_system", "a file system")
    read = [readings(mount, "path", "source")[0] for mount in readings(node, "mounts")[0].get("mounts", ())]
    paths = [row["path"] for row in read if "path" in row and f":/{name}/" in f"{row.get('source', '')}/"]
    return f"{', '.join(paths)} ({name})" if paths else name


def _read_ahead(cache: LustreCache) -> str:
    hits, misses = readings(cache, "read_ahead")[0].get("read_ahead", (0, 0))
    return f"; read-ahead had {hits} hits and {misses} misses" if hits or misses else ""
