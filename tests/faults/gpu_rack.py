"""Trays of an NVLink rack: their domain and IMEX."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from clusterproof.plugins.core.policy import Policy
from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.faults.gpu_fabric import gb300
from tests.testbed.compiled import LIBRARIES
from tests.testbed.gpus import MODELS
from tests.testbed.image import Content, File, NodeImage
from tests.testbed.imex import ADDRESSES, CHANNEL, NODES, domain, program
from tests.testbed.node import with_file, with_tool, without_file

DRIVER = MODELS["GB300"].driver
DOMAIN, LIST, UNIFORM = "gpu.imex_domain", "gpu.imex_nodes", "gpu.rack_uniform"


def answering(image: NodeImage, printed: str, code: int = 0) -> NodeImage:
    """The tray's nvidia-imex-ctl prints this."""
    return with_tool(image, "nvidia-imex-ctl", program(printed, code))


def listed(image: NodeImage, *addresses: str) -> NodeImage:
    """The tray's nodes_config.cfg has these addresses."""
    return with_file(image, NODES, "".join(f"{address}\n" for address in addresses))


def with_own_file(image: NodeImage, *addresses: str) -> NodeImage:
    """The tray's nvidia-imex and nvidia-imex-ctl use a separate file with these addresses."""
    script, config, nodes = "/usr/lib/testbed/imex.sh", "/opt/imex/config.cfg", "/opt/imex/nodes.cfg"
    program_of = f"{LIBRARIES}/nvidia-imex"
    files: dict[str, Content] = {
        config: f"IMEX_NODE_CONFIG_FILE={nodes}\n",
        nodes: "".join(f"{address}\n" for address in addresses),
        program_of: File(Path("/bin/sh").read_bytes(), 0o755),
        script: "echo $$ >/run/nvidia-imex.pid\nsleep infinity &\nwait\n",
        "/usr/sbin/nvidia-imex": File(f"#!/bin/sh\nexec {program_of} {script} -c {config}\n", 0o755),
    }
    answer = program(domain(DRIVER)).replace("\n", f'\n[ "$4 $5" = "-c {config}" ] || exit 255\n', 1)
    image = with_tool(image, "nvidia-imex-ctl", answer)
    return replace(image, files={**image.files, **files}, daemons={**image.daemons, "nvidia-imex": ""})


def with_driver(image: NodeImage, driver: str) -> NodeImage:
    """NVML reports this driver."""
    return replace(image, nvml=(image.nvml or "").replace(f"driver = {DRIVER}", f"driver = {driver}"))


FAULTS = (
    Fault(
        "a tray that IMEX connects to no other",
        lambda image: answering(image, domain(DRIVER, {1: "VERSION_MISMATCH", 2: "VERSION_MISMATCH", 3: "INVALID"})),
        {DOMAIN: FAIL},
        " of 3 IMEX connections to other trays are not up: VERSION_MISMATCH with gpu002 (10.1.2.1), gpu003 (10.1.2.2)",
        base=gb300,
    ),
    Fault(
        "a tray without an IMEX connection to one other",
        lambda image: answering(image, domain(DRIVER, {2: "RECOVERING"}, state="DEGRADED")),
        {DOMAIN: CONCERN},
        " of 3 IMEX connections to other trays are not up: RECOVERING with gpu003 (10.1.2.2); expected CONNECTED",
        base=gb300,
    ),
    Fault(
        "a tray whose IMEX is not ready",
        lambda image: answering(image, domain(DRIVER, status="INITIALIZING", state="DOWN")),
        {DOMAIN: FAIL},
        "nvidia-imex is INITIALIZING; expected READY",
        base=gb300,
    ),
    Fault(
        "a tray whose IMEX works with the driver before",
        lambda image: answering(image, domain("570.172")),
        {DOMAIN: CONCERN, UNIFORM: CONCERN},
        f"nvidia-imex uses driver version 570.172; expected {DRIVER}, the loaded driver",
        base=gb300,
    ),
    Fault(
        "a tray whose IMEX answers nothing",
        lambda image: answering(image, "Failed to read the node configuration file", 255),
        {DOMAIN: INCOMPLETE},
        "nvidia-imex-ctl -N ended with 255",
        base=gb300,
    ),
    Fault(
        "a tray whose IMEX was not restarted since its list grew",
        lambda image: answering(image, domain(DRIVER, addresses=ADDRESSES[:3])),
        {DOMAIN: CONCERN},
        "3 trays in the running domain, 4 in nodes_config.cfg; expected as many, since nvidia-imex reads it once",
        base=gb300,
    ),
    Fault(
        "a tray whose IMEX shows no connection to one other",
        lambda image: answering(image, domain(DRIVER, {2: "N/A"})),
        {DOMAIN: INCOMPLETE},
        "no state is shown for 1 of 3 IMEX connections to other trays: gpu003 (10.1.2.2); expected CONNECTED",
        base=gb300,
    ),
    Fault(
        "a tray with another list of nodes than the others",
        lambda image: listed(image, *ADDRESSES[:3], "10.1.2.77", ADDRESSES[3]),
        {LIST: FAIL, DOMAIN: CONCERN},
        "nodes_config.cfg differs from that of gpu002, gpu003, gpu004; expected the same list on all 4 trays in it",
        base=gb300,
    ),
    Fault(
        "a tray that lists itself alone, and that the others list",
        lambda image: listed(image, ADDRESSES[0]),
        {LIST: FAIL, DOMAIN: CONCERN},
        "nodes_config.cfg differs from that of gpu002, gpu003, gpu004; expected the same list on all 4 trays in it",
        base=gb300,
    ),
    Fault(
        "a tray whose IMEX was started with a file that has another list",
        lambda image: with_own_file(image, *ADDRESSES[:3], "10.1.2.77", ADDRESSES[3]),
        {LIST: FAIL, DOMAIN: CONCERN},
        "nodes_config.cfg differs from that of gpu002, gpu003, gpu004; expected the same list on all 4 trays in it",
        base=gb300,
    ),
    Fault(
        "a tray whose IMEX runs without a list",
        lambda image: without_file(image, NODES),
        {LIST: INCOMPLETE},
        "nvidia-imex runs, but no list of trays was found; expected one in nodes_config.cfg",
        base=gb300,
    ),
    Fault(
        "more trays in one NVLink domain than a rack has",
        lambda image: image,
        {"gpu.rack_trays": CONCERN},
        "cluster 00000001000000000000000000000001 has 4 trays here (gpu[001-004]); expected at most 3",
        base=gb300,
        policy=Policy(thresholds={"rack.trays": 3}),
    ),
    Fault(
        "a tray of another driver than its rack",
        lambda image: with_driver(image, "580.95.05"),
        {UNIFORM: CONCERN, DOMAIN: CONCERN},
        "driver in cluster 00000001000000000000000000000001 580.95.05; expected 580.173.02 as on 3 of 4 nodes",
        base=gb300,
    ),
    Fault(
        "a tray without the IMEX channel of the others",
        lambda image: without_file(image, CHANNEL),
        {UNIFORM: CONCERN, "software.container_devices": CONCERN},
        "IMEX channel 0 in cluster 00000001000000000000000000000001 missing; expected there",
        base=gb300,
    ),
    Fault(
        "a tray with fewer IMEX channels than the others",
        lambda image: replace(image, proc={**image.proc, "driver/nvidia/params": "ImexChannelCount: 1\n"}),
        {UNIFORM: CONCERN},
        "IMEX channels in cluster 00000001000000000000000000000001 1; expected 2048 as on 3 of 4 nodes",
        base=gb300,
    ),
)
