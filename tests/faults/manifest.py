"""Images that do not match their golden manifest."""

from __future__ import annotations

from clusterproof.plugins.core.policy import Policy
from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.testbed.image import NodeImage
from tests.testbed.neuron import healthy_trn1
from tests.testbed.node import with_file, with_service, without_file, without_module
from tests.testbed.software import LIBRARIES

VERSIONS, DRIVERS, MODULES = (f"software.{what}_expected" for what in ("versions", "drivers", "modules"))
LIBRARIES_EXPECTED, SERVICES, SIZES = (f"software.{what}_expected" for what in ("libraries", "services", "sizes"))


def as_it_is(image: NodeImage) -> NodeImage:
    """The unchanged node; the manifest asks for something else."""
    return image


FAULTS = (
    Fault(
        "a version that the manifest does not have",
        as_it_is,
        {VERSIONS: FAIL},
        "cuda 12.9.1; expected cuda == 12.8",
        policy=Policy(versions={"cuda": "== 12.8", "nccl": "2.27 to 2.28"}),
    ),
    Fault(
        "a version that the manifest excludes",
        as_it_is,
        {VERSIONS: FAIL},
        "nccl 2.27.7; expected nccl != 2.27.7",
        policy=Policy(versions={"nccl": ">= 2.26, != 2.27.7"}),
    ),
    Fault(
        "a component that the manifest excludes",
        as_it_is,
        {VERSIONS: FAIL},
        "docker 5:28.1.1-1~ubuntu.22.04~jammy; expected no docker",
        policy=Policy(versions={"docker": "absent"}),
    ),
    Fault(
        "a component that the manifest names and the node lacks",
        as_it_is,
        {VERSIONS: FAIL},
        "no neuron-tools; expected neuron-tools >= 2.20",
        policy=Policy(versions={"neuron-tools": ">= 2.20"}),
    ),
    Fault(
        "a row of the manifest that is no rule",
        as_it_is,
        {VERSIONS: INCOMPLETE},
        "cuda: '12' is not a rule; expected one of == != >= <= > < and a version",
        policy=Policy(versions={"cuda": "12"}),
    ),
    Fault(
        "a driver that the manifest does not have",
        as_it_is,
        {DRIVERS: FAIL},
        "driver 580.126.09; expected driver == 580.95.05",
        policy=Policy(versions={"driver": "== 580.95.05"}),
    ),
    Fault(
        "a module that the manifest asks for and nobody installed",
        as_it_is,
        {MODULES: FAIL},
        "module nvidia_fs is absent; expected loaded",
        policy=Policy(modules={"nvidia_fs": "loaded"}),
    ),
    Fault(
        "a module that the manifest asks for and nobody loaded",
        lambda image: without_module(image, "gdrdrv"),
        {MODULES: FAIL, "gpu.peermem": CONCERN, "software.version_drift": CONCERN},
        "module gdrdrv is installed; expected loaded",
        policy=Policy(modules={"gdrdrv": "loaded"}),
    ),
    Fault(
        "an index of modules that cannot be read",
        lambda image: without_file(image, "/lib/modules/6.8.0-1021-aws/modules.dep"),
        {MODULES: INCOMPLETE},
        "modules could not be read (ENOENT)",
        policy=Policy(modules={"nouveau": "absent"}),
    ),
    Fault(
        "an empty library that the manifest asks for",
        lambda image: with_file(image, f"{LIBRARIES}/libnccl.so.2.27.7", ""),
        {LIBRARIES_EXPECTED: FAIL, "software.libraries_load": FAIL, "software.container_libraries": FAIL},
        "libnccl.so.2 is empty; expected whole",
        policy=Policy(libraries={"libnccl.so.2": "whole"}),
    ),
    Fault(
        "a service that the manifest wants enabled",
        lambda image: with_service(image, "chrony", enabled="disabled"),
        {SERVICES: FAIL, "host.services": CONCERN},
        "service chrony is active, disabled; expected active, enabled",
        policy=Policy(services={"chrony": "active, enabled"}),
    ),
    Fault(
        "a smaller machine than the manifest asks for",
        as_it_is,
        {SIZES: FAIL},
        "cpus 192; expected cpus >= 200",
        policy=Policy(sizes={"cpus": "200 to 400"}, made_on="p5.48xlarge"),
    ),
    Fault(
        "fewer disks, and smaller ones, than the manifest asks for",
        as_it_is,
        {SIZES: FAIL},
        "nvme_disks 8; expected nvme_disks >= 9",
        policy=Policy(sizes={"nvme_disks": ">= 9", "root_gib": ">= 9000", "dev_shm_gib": ">= 9000", "efa": "== 32"}),
    ),
    Fault(
        "a fabric manager that the manifest does not have",
        as_it_is,
        {VERSIONS: FAIL},
        "fabric_manager 580.126.09; expected fabric_manager == 570.1",
        policy=Policy(versions={"fabric_manager": "== 570.1"}),
    ),
    Fault(
        "a network driver that the manifest does not have",
        as_it_is,
        {DRIVERS: FAIL},
        "efa ",
        policy=Policy(versions={"efa": "== 1.0"}),
    ),
    Fault(
        "modules and services of devices that the manifest wants otherwise",
        as_it_is,
        {MODULES: FAIL, SERVICES: FAIL},
        "module efa is loaded; expected absent",
        policy=Policy(
            modules={"efa": "absent", "ib_core": "loaded", "mlx5_core": "loaded"},
            services={"nvidia-fabricmanager": "inactive"},
        ),
    ),
    Fault(
        "a Neuron driver that the manifest does not have",
        as_it_is,
        {DRIVERS: FAIL, MODULES: FAIL},
        "expected neuron_driver == 1.0",
        base=healthy_trn1,
        policy=Policy(versions={"neuron_driver": "== 1.0"}, modules={"neuron": "absent"}),
    ),
)
