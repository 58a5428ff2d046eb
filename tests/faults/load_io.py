"""EFA, file systems and Trainium that are slow, wrong or unresponsive under load."""

from __future__ import annotations

from functools import partial

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE
from tests.faults.load import FILES, LOOPBACK, NCCOM, fault, slow, without
from tests.testbed.faults import FI_INFO_HIDES
from tests.testbed.load import EFA_BIN, SCRATCH, loadable_trn2
from tests.testbed.node import with_file
from tests.testbed.pci import EFA_BUSES

DOMAIN = f"rdmap{EFA_BUSES[5]}s0-rdm"

of_trainium = partial(fault, base=loadable_trn2)

FAULTS = (
    fault(
        "load: an EFA device through which nothing comes back",
        slow(f"efa {DOMAIN} silent"),
        LOOPBACK,
        FAIL,
        f"no exchange through {DOMAIN} (exit status 5: ",
    ),
    fault(
        "load: an EFA device that cannot be opened",
        slow(f"efa {DOMAIN} broken"),
        LOOPBACK,
        FAIL,
        f"no exchange through {DOMAIN} (no end in its time: fi_getinfo: -61",
    ),
    fault(
        "load: an EFA device that is slow",
        slow(f"efa {DOMAIN} 8100.20"),
        LOOPBACK,
        CONCERN,
        f"{DOMAIN} 8100 MB/s; expected at least 80 % of the 10921 MB/s of most domains",
    ),
    fault(
        "load: an EFA device that libfabric does not offer",
        lambda image: with_file(image, FI_INFO_HIDES, f"{DOMAIN.removesuffix('-rdm')}\n"),
        LOOPBACK,
        INCOMPLETE,
        "libfabric offers 31 domains; expected one for each of 32 EFA devices",
        {"network.libfabric_efa": FAIL},
    ),
    fault(
        "load: EFA's software without fi_pingpong",
        without(f"{EFA_BIN}/fi_pingpong"),
        LOOPBACK,
        INCOMPLETE,
        "no fi_pingpong on PATH",
    ),
    fault(
        "load: a node that writes more slowly than the others",
        slow("fio write 1.5"),
        FILES,
        CONCERN,
        f"{SCRATCH}: write 1.53 GB/s where 4 nodes have 2.49; expected at least 80 % of their median",
    ),
    fault(
        "load: a file system without direct I/O",
        slow("fio fails"),
        FILES,
        INCOMPLETE,
        "Invalid argument",
        {"node.evidence_complete": CONCERN},
    ),
    fault("load: a node without the folder", without(SCRATCH), FILES, INCOMPLETE, f"no folder {SCRATCH}"),
    of_trainium(
        "load: a NeuronCore that cannot take part",
        slow("nccom fails"),
        NCCOM,
        FAIL,
        "NRT_EXEC_HW_ERR_COLLECTIVES on nd 3",
    ),
    of_trainium(
        "load: collectives that are slower than on the other nodes",
        slow("nccom busbw 60"),
        NCCOM,
        FAIL,
        "1073741824 bytes: 59.78 GB/s, 16 % below the median of 4 nodes",
    ),
    of_trainium(
        "load: collectives that are a little slower",
        slow("nccom busbw 66"),
        NCCOM,
        CONCERN,
        "7 % below the median of 4 nodes",
    ),
)
