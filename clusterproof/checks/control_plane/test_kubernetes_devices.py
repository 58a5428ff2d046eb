"""Devices that Kubernetes allocates to pods, compared with the instance type and with the node's own report."""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import listed, number_of
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import (
    Incomplete,
    NotApplicable,
    concern_if,
    fail_if,
    incomplete,
    not_applicable,
    part,
)
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.field import each, readings
from clusterproof.plugins.evidence.kubernetes.facts import ComputeDomain, KubernetesNode
from clusterproof.plugins.evidence.kubernetes.facts_cluster import slices_of
from clusterproof.plugins.evidence.kubernetes.nodes import MemberNode
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.control_plane, mark.preflight]

MIB = 2**20
PAGE_KIB = 2048
NAMES = {
    "gpu": "nvidia.com/gpu",
    "gpu_shared": "nvidia.com/gpu.shared",
    "gpu_amd": "amd.com/gpu",
    "neuron": "aws.amazon.com/neuron",
    "neurondevice": "aws.amazon.com/neurondevice",
    "neuroncore": "aws.amazon.com/neuroncore",
    "efa": "vpc.amazonaws.com/efa",
}
ACCELERATORS = ("gpu", "gpu_shared", "gpu_amd", "neuron", "neurondevice", "neuroncore")
_OF_SHARING = re.compile(r"( SHARED| MIG [0-9a-z.]+)+$")
RESOURCES = "kubectl get node NODE -o jsonpath='{.status.capacity}{.status.allocatable}'"


@mark.hyperpod_node_debugger("G")
@evidence(f"{RESOURCES}; kubectl get resourceslices --field-selector spec.nodeName=NODE")
def test_k8s_gpu_allocatable(k8s_node: MemberNode, cluster: ClusterFacts) -> None:
    """Accelerators that pods can request.

    If fewer are allocatable than the instance type has, the device plugin found a device unhealthy, is not running, or
    started before the driver. Devices offered by a DRA driver count as well: it taints one that is unhealthy.

    Remedy (investigate): Read the log of the device plugin's pod on the node and look at the node's GPU checks; then
    restart the pod or reboot the node.
    """
    listed, node = k8s_node.listed, k8s_node.node
    is_by_plugin = listed.capacity.mig or any(map(listed.capacity.of, ACCELERATORS))
    ill = [*(_not_given(listed, ACCELERATORS) if is_by_plugin else _tainted(cluster, listed, "gpu", "neuron"))]
    fail_if(ill, f"{', '.join(ill)}; expected every device allocatable")
    if listed.has_divided_gpus:
        return
    gpus = node.expected("gpus")
    if gpus:
        given = _gpus_given(listed, cluster)
        assert given == gpus, f"{given} GPUs allocatable; expected {gpus}"
        return
    devices = _neuron_devices(node)
    if not devices:
        not_applicable("no accelerators are expected of it")
    given = listed.capacity.of("neuron") or listed.capacity.of("neurondevice") or _claimable(cluster, listed, "neuron")
    assert given == devices, f"{given} Neuron devices allocatable; expected {devices}"


@mark.hyperpod_node_debugger("A")
@evidence(f"{RESOURCES}; kubectl get resourceslices --field-selector spec.nodeName=NODE")
def test_k8s_efa_allocatable(k8s_node: MemberNode, cluster: ClusterFacts) -> None:
    """EFA devices that pods can request.

    A pod without EFA devices falls back to TCP, and one that requests all of them stays pending. Devices offered by a
    DRA driver count as well.

    Remedy (investigate): Read the log of the EFA device plugin on the node, and look at the node's EFA checks.
    """
    listed = k8s_node.listed
    ill = list(_not_given(listed, ("efa",)))
    fail_if(ill, f"{', '.join(ill)}; expected every device allocatable")
    expected = k8s_node.node.expected("efa")
    given = listed.capacity.of("efa")
    if not expected and not given:
        not_applicable("no EFA is expected of it")
    if not given:
        tainted = [*_tainted(cluster, listed, "efa", "dra.net")]
        fail_if(tainted, f"{', '.join(tainted)}; expected every device allocatable")
    if given != expected:
        by_claims = _claimable(cluster, listed, "efa") or _claimable(cluster, listed, "dra.net")
        given = min(by_claims, expected) if by_claims and not given else given  # dra.net offers other interfaces too
    assert given == expected, f"{given} EFA devices allocatable; expected {expected}"


@mark.hyperpod_node_debugger("G")
@evidence(f"{RESOURCES}; on the node: nvidia-smi -L | wc -l")
def test_k8s_gpu_seen(k8s_node: MemberNode, cluster: ClusterFacts) -> None:
    """GPUs in Kubernetes and in the driver.

    The device plugin counts GPUs when it starts. If the driver has lost a GPU since, a pod that gets it fails; if the
    driver has found more, they are never allocated.

    Remedy (restore service): Fix what the node's GPU checks report, then restart the device plugin's pod there.
    """
    listed = k8s_node.listed
    if listed.has_divided_gpus:
        not_applicable("its GPUs are partitioned or shared, so Kubernetes does not count whole GPUs")
    given = _gpus_given(listed, cluster)
    is_of_nvidia = any(map(listed.capacity.of, ("gpu", "gpu_shared")))
    if given and not is_of_nvidia and (listed.capacity.of("gpu_amd") or slices_of(cluster, listed, "gpu.amd.com")):
        not_applicable("its GPUs are AMD's, and NVML counts NVIDIA's")
    if not given and not k8s_node.node.expected("gpus"):
        not_applicable("no GPUs are expected of it")
    seen = k8s_node.node.gpu_count
    assert given == seen, f"Kubernetes has {given} GPUs, NVML counts {seen}; expected the same number"


@mark.hyperpod_node_debugger("G")
@evidence("kubectl get node NODE --show-labels; on the node: nvidia-smi -L")
def test_k8s_gpu_labels(k8s_node: MemberNode) -> None:
    """Labels of GPU feature discovery.

    Jobs select nodes by these labels: a wrong label sends them to the wrong GPU model.

    Remedy (fix configuration): Restart the gpu-feature-discovery pod on the node, or deploy it where it does not run.
    """
    listed = k8s_node.listed
    product, count, driver = (listed.label(name) for name in ("gpu_product", "gpu_count", "driver"))
    if not (product or count):
        others = any(other.label("gpu_product") for other in k8s_node.others)
        concern_if(others, "its GPUs have no labels, but those of its group do; expected nvidia.com/gpu.product")
        not_applicable("its GPUs have no labels")
    gpus = k8s_node.node.gpus
    with part:
        names = sorted({*each(gpus, lambda gpu: gpu.name)})
        is_other = product and names and _OF_SHARING.sub("", product) not in [name.replace("-", " ") for name in names]
        message = f"label nvidia.com/gpu.product is {product}, NVML reports {', '.join(names)}; expected the same"
        fail_if(is_other, message)
    is_other = count and not listed.has_divided_gpus and count != str(len(gpus))
    fail_if(is_other, f"label nvidia.com/gpu.count is {count}, NVML counts {len(gpus)}; expected the same")
    seen = k8s_node.node.nvml.driver
    unlike = f"label nvidia.com/cuda.driver-version.full is {driver}, the driver {seen}; expected the same"
    concern_if(driver and driver != seen, unlike)


@mark.hyperpod_node_debugger("N")
@evidence(f"{RESOURCES}; on the node: grep -r . /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
def test_k8s_hugepages(k8s_node: MemberNode) -> None:
    """Huge pages in Kubernetes and in the kernel.

    The kubelet counts huge pages when it starts. Pages reserved later are never allocated to pods, and a pod that gets
    pages that no longer exist fails to start.

    Remedy (fix configuration): Reserve the pages before the kubelet starts (at boot), or restart the kubelet.
    """
    listed = k8s_node.listed
    pages = [pool.pages for pool in k8s_node.node.main_memory.huge_pages if pool.size_kib == PAGE_KIB]
    reserved, given = sum(pages) * PAGE_KIB // 1024, listed.allocatable.of("hugepages_2mi") // MIB
    assert given == reserved, (
        f"Kubernetes offers {given} MiB of huge pages, but the kernel has reserved {reserved} MiB; expected the same"
    )


def _not_given(listed: KubernetesNode, resources: tuple[str, ...]) -> Iterator[str]:
    """`7 of 8 nvidia.com/gpu allocatable`, for each resource that is not fully allocatable."""
    has, gives = listed.capacity, listed.allocatable
    for name in resources:
        if gives.of(name) < has.of(name):
            yield f"{gives.of(name)} of {has.of(name)} {NAMES[name]} allocatable"
    if "gpu" in resources:
        for profile, count in has.mig.items():
            if gives.mig.get(profile, 0) < count:
                yield f"{gives.mig.get(profile, 0)} of {count} nvidia.com/mig-{profile} allocatable"


def _gpus_given(listed: KubernetesNode, cluster: ClusterFacts) -> int:
    """The GPUs that Kubernetes knows, shared ones once; by claims if no device plugin offers any."""
    by_plugin = next(filter(None, map(listed.capacity.of, ("gpu", "gpu_shared", "gpu_amd"))), 0)
    return by_plugin // listed.replicas if by_plugin else _claimable(cluster, listed, "gpu")


def _claimable(cluster: ClusterFacts, listed: KubernetesNode, word: str) -> int:
    """The devices that DRA drivers with this name offer on a node."""
    return sum(offer.devices if offer.gpus is None else offer.gpus for offer in slices_of(cluster, listed, word))


def _tainted(cluster: ClusterFacts, listed: KubernetesNode, *words: str) -> Iterator[str]:
    """The devices that DRA drivers with these names offer on a node, and give to no claim.

    None if slices may not be listed: that is said where devices are expected.
    """
    for word in words if readings(cluster, "kubernetes_slices")[0] else ():
        for offer in slices_of(cluster, listed, word):
            yield from (f"{offer.driver}: {device}" for device in offer.tainted)


def _neuron_devices(node: Node) -> int:
    try:
        return int(node.of_type("neuron_devices"))
    except (Incomplete, NotApplicable):
        return 0


@mark.hyperpod_node_debugger("G")
@evidence("kubectl get computedomains -A -o yaml; on the node: nvidia-imex-ctl -q")
def test_k8s_compute_domains(cluster: ClusterFacts) -> None:
    """Compute domains.

    The nodes of a compute domain of NVIDIA's DRA driver share GPU memory over NVLink through their IMEX daemons. A node
    whose daemon is not ready, or that is in no clique while others are, takes no part: its ranks fail, or fall back to
    the network. Users create domains, so none fails a node.

    Remedy (investigate): Read the log of the domain's computedomain-daemon pod on the node, and look at the node's IMEX
    and fabric checks.
    """
    domains = cluster.compute_domains
    settle_s = cluster.threshold("kubernetes.settle_minutes") * 60
    settled = [domain for domain, age_s in each(domains, lambda of: (of, of.age_s)) if age_s > settle_s]
    faults = [fault for found in each(settled, _domain_faults) for fault in found]
    concern_if(faults, f"{listed(faults)}; expected every node's IMEX daemon Ready, in a clique")
    if left_out := cluster.compute_domains_left_out:
        incomplete(f"{number_of(left_out, 'more compute domain')} not checked; expected at most {len(domains)}")
    if not domains:
        not_applicable("no workload has a compute domain")


def _domain_faults(domain: ComputeDomain) -> list[str]:
    nodes = domain.nodes
    has_cliques = any(node.clique for node in nodes)
    waits = [node.name for node in nodes if node.status == "NotReady"]
    alone = [node.name for node in nodes if has_cliques and not node.clique]
    faults = [f"NotReady on {fold(waits)}"] if waits else []
    faults += [f"no clique on {fold(alone)}, as the others have"] if alone else []
    faults += [f"{len(nodes)} of {domain.wanted} nodes"] if nodes and len(nodes) < domain.wanted else []
    return [f"{domain.name}: {', '.join(faults)}"] if faults else []
