"""A node of the cluster: its expectations, and its evidence as typed facts."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.core.result import why_unreachable
from clusterproof.plugins.core.typed import TYPE_CHECKING, Any
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence import expectation
from clusterproof.plugins.evidence.fact import CollectorData, answer_of, captured_as, collected_as, collected_by
from clusterproof.plugins.evidence.gpu import facts_node as of_gpus
from clusterproof.plugins.evidence.gpu import facts_rack as of_rack
from clusterproof.plugins.evidence.group import Group
from clusterproof.plugins.evidence.host import facts_node as host
from clusterproof.plugins.evidence.kernel_log import facts as kernel_log
from clusterproof.plugins.evidence.kernel_log.window import BOOT, Window
from clusterproof.plugins.evidence.network import facts_node as network
from clusterproof.plugins.evidence.neuron import facts as of_neuron
from clusterproof.plugins.evidence.pci import facts_config
from clusterproof.plugins.evidence.perf import facts_node as perf
from clusterproof.plugins.evidence.software.facts import Image, Software
from clusterproof.plugins.evidence.storage import facts as storage

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.kubernetes.facts import Kubelet
    from clusterproof.plugins.evidence.pairs import Between
    from clusterproof.plugins.evidence.slurm.facts import SlurmNode, SlurmNodes

HEALTH_CHECK = "health check"  # between jobs, of all that is around one
DRAINING = ("prolog", "epilog", HEALTH_CHECK)  # where a fail keeps jobs away
MAX_NAME = 80  # characters of a name that goes into every result


def _slurm_nodes(captured: Mapping[str, Any]) -> SlurmNodes:
    """The nodes that were captured: this one, or the whole cluster."""
    from clusterproof.plugins.evidence.slurm.facts import SlurmNodes

    return SlurmNodes(captured)


@record
class Node:
    """One node. A fact raises Incomplete if the node could not report it, NotApplicable if it is meaningless there."""

    target: Target
    evidence: NodeEvidence
    occasion: str = "preflight"
    policy: Policy = NO_POLICY
    since: Window = BOOT
    group: Group[Node] = field(default_factory=Group, repr=False)
    run: Group[Node] = field(default_factory=Group, repr=False)  # all nodes, of whatever group
    between: Between | None = field(default_factory=type(None), repr=False)  # what was measured between nodes
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)  # of the connection, as its cluster has them
    facts: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The name that the inventory gives it."""
        return self.target.name

    @property
    def drains(self) -> bool:
        """Whether a fail may drain it: then what its users or others' file servers do is no fault of its own."""
        return self.occasion in DRAINING

    @property
    def why_unreached(self) -> str:
        """`unreachable: host key`; empty where it was reached."""
        reason = self.evidence.unreached
        return why_unreachable(reason) if reason else ""

    @property
    def collectors(self) -> Mapping[str, Collected]:
        """The answers of all collectors. Raises Incomplete where the node was not reached."""
        if self.evidence.unreached:
            why = self.why_unreached
            raise Incomplete(f"{why}: {self.evidence.detail}" if self.evidence.detail else why, cause=why)
        return self.evidence.collectors

    def collector(self, name: str) -> Collected:
        """One collector's answer. Raises Incomplete where the node was not reached."""
        return self.collectors.get(name) or Collected(Status.NOT_ASKED)

    @property
    def if_denied(self) -> str:
        """What to do where a collector was denied, mostly as only root may read it; nothing where it was root."""
        boot = self.evidence.collectors.get("boot")  # which is always asked
        is_root = boot and isinstance(boot.value, dict) and boot.value.get("uid") == 0
        return "" if is_root else "; run as root, or with --sudo"

    def answer(self, collector: str) -> Mapping[str, Any]:
        """The JSON object that a collector of one's own returned, unchanged. Raises Incomplete."""
        return answer_of(collector, self.collector(collector), self.if_denied).value

    @property
    def catalog(self) -> Catalog:
        """The catalogue, with the rows of the site's policy in their place."""
        return Catalog.of(self.policy)

    def threshold(self, name: str) -> float:
        """A number by `table.key` (`shm.minimum_gib`), in the unit of its row; a site's own before the catalogue's."""
        return self.catalog.threshold(name)

    # What it is expected to be

    instance_type = expectation.instance_type
    platform = expectation.platform
    metadata = expectation.metadata
    resource_config = expectation.resource_config
    instance_type_by_metadata = expectation.instance_type_by_metadata
    instance_id = expectation.instance_id
    type = expectation.type_row
    is_build_host = expectation.is_build_host
    expected = expectation.expected
    nvlinks_due = expectation.nvlinks_due
    same_machine = expectation.same_machine
    is_outside_ec2 = expectation.is_outside_ec2
    of_type = expectation.of_type
    boot = expectation.boot

    # GPUs

    nvml = of_gpus.nvml
    driver_hangs = of_gpus.driver_hangs
    driver_error = of_gpus.driver_error
    gpu_count = of_gpus.gpu_count
    hidden_gpus = of_gpus.hidden_gpus
    gpus = of_gpus.gpus
    idle_gpus = of_gpus.idle_gpus
    inforoms = of_gpus.inforoms
    pci_devices = of_gpus.pci_devices
    gpus_on_bus = of_gpus.gpus_on_bus
    pci_switches = of_gpus.pci_switches
    pci_settings = facts_config.pci_settings
    gpu_paths = of_gpus.gpu_paths
    imex = of_rack.imex
    imex_domain = of_rack.imex_domain
    imex_self = of_rack.imex_self

    # Network

    rdma_devices = network.rdma_devices
    efa_devices = network.efa_devices
    efa_driver = network.efa_driver
    efa_seen = network.efa_seen
    majority_efa = network.majority_efa
    efa_attached = network.efa_attached
    ib_devices = network.ib_devices
    roce_ports = network.roce_ports
    modules = network.modules
    uverbs = network.uverbs
    nvidia_taint = network.nvidia_taint
    efa_counters = network.efa_counters
    efa_counters_by_name = network.efa_counters_by_name
    efa_counted_s = network.efa_counted_s
    ena_counters = network.ena_counters
    ena_counted_s = network.ena_counted_s
    interfaces = network.interfaces
    active_link_layers = network.active_link_layers
    interface_names = network.interface_names
    naming = network.naming
    environment = network.environment
    environment_unread = network.environment_unread
    fi_info = network.fi_info

    # The kernel log

    kernel_events = kernel_log.kernel_events
    users_write_the_log = kernel_log.users_write_the_log
    kernel_log_is_cut = kernel_log.kernel_log_is_cut
    kernel_log_is_unfinished = kernel_log.kernel_log_is_unfinished
    kernel_lines_cut = kernel_log.kernel_lines_cut
    kernel_lines_folded = kernel_log.kernel_lines_folded
    kernel_lines_uncounted = kernel_log.kernel_lines_uncounted
    counting = kernel_log.counting
    window_begins = kernel_log.window_begins

    # Host

    memory_controllers = host.memory_controllers
    zombies = host.zombies
    blocked_processes = host.blocked_processes
    blocked_alike = host.blocked_alike
    blocked_left_out = host.blocked_left_out
    processors = host.processors
    main_memory = host.main_memory
    clock_apart_s = host.clock_apart_s
    kernel_state = host.kernel_state
    jobs = host.jobs
    kernel_limits = host.kernel_limits
    process_limits = host.process_limits
    job_limits = property(host.job_limits)
    services = host.services
    failed_units = host.failed_units
    units_left_out = host.units_left_out
    restarting_units = host.restarting_units
    slurm_without_munge = host.slurm_without_munge
    fabric_manager_version = host.fabric_manager_version

    @collected_by("kubelet")
    def kubelet(self, answer: CollectorData) -> Kubelet:
        """The policies of its kubelet."""
        from clusterproof.plugins.evidence.kubernetes.facts import Kubelet  # what no prolog asks for costs it nothing

        return Kubelet(answer.value)

    # Storage

    mounts = storage.mounts
    fstab = storage.fstab
    mounts_left_out = storage.mounts_left_out
    mount_points = storage.mount_points
    majority_mount_points = storage.majority_mount_points
    mount_at = storage.mount_at
    lustre = storage.lustre
    lustre_mounts = storage.lustre_mounts
    lustre_clients = property(storage.lustre_clients)
    lustre_targets = storage.lustre_targets
    lustre_targets_left_out = storage.lustre_targets_left_out
    osts = property(storage.osts)
    mdts = property(storage.mdts)
    checkpoint_folders = storage.checkpoint_folders
    nvme_controllers = storage.nvme_controllers
    ebs_volumes = storage.ebs_volumes

    # Neuron

    neuron = of_neuron.neuron
    neuron_devices_due = of_neuron.neuron_devices_due
    neuron_devices = of_neuron.neuron_devices
    neuron_ls = of_neuron.neuron_ls
    neuron_ls_hangs = of_neuron.neuron_ls_hangs
    neuron_hardware_errors = of_neuron.neuron_hardware_errors

    # What its hardware does under load

    dcgm_diag = perf.dcgm_diag
    nccom = perf.nccom
    node_busbw = perf.node_busbw
    gpu_bandwidth = perf.gpu_bandwidth
    gpu_gemm = perf.gpu_gemm
    gpu_exact = perf.gpu_exact
    exact_collective = perf.exact_collective
    exact_step = perf.exact_step
    cpu_exact = perf.cpu_exact
    stress_ng = perf.stress_ng
    efa_loopback = perf.efa_loopback
    fs_bandwidth = perf.fs_bandwidth
    pairwise = perf.pairwise

    # Only in captures

    nccl_tests = perf.nccl_tests
    slurm_nodes = captured_as("slurm_node", _slurm_nodes, "output of scontrol or sinfo")

    @collected_by()
    def slurm_node(self) -> SlurmNode:
        """This node as Slurm has it, by the inventory's name or its own."""
        of_several = self.run.shared("only record of Slurm", lambda node: node.slurm_nodes.only)
        return self.slurm_nodes.named(self.name, *self._own_names(), of_several=of_several)

    def _own_names(self) -> list[str]:
        try:
            return [self.boot.hostname, self.boot.hostname.partition(".")[0]]
        except Incomplete:
            return []

    # Software

    software = collected_as("versions", Software)
    image = collected_as("image", Image)

    # Who it is, for every report

    gpu_uuids = of_gpus.gpu_uuids

    @property
    def type_name(self) -> str:
        """Its instance type, or empty where it is unknown."""
        if "type_name" not in self.facts:
            self.facts["type_name"] = self._type_name()
        return self.facts["type_name"]  # type: ignore[no-any-return]

    def _type_name(self) -> str:
        try:
            return printable(self.instance_type, MAX_NAME)
        except (Incomplete, NotApplicable):
            return ""
