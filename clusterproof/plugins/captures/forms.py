"""Every form of output that is known, by what it is recognised, and how it is read."""

from __future__ import annotations

from clusterproof.plugins.evidence.aws import parse as aws
from clusterproof.plugins.evidence.gpu import parse_imex as imex
from clusterproof.plugins.evidence.gpu import parse_nvidia_smi_csv as nvidia_smi_csv
from clusterproof.plugins.evidence.gpu import parse_nvidia_smi_lists as nvidia_smi_lists
from clusterproof.plugins.evidence.gpu import parse_nvidia_smi_q as nvidia_smi_q
from clusterproof.plugins.evidence.gpu import parse_nvidia_smi_table as nvidia_smi_table
from clusterproof.plugins.evidence.gpu import parse_nvidia_smi_topo as nvidia_smi_topo
from clusterproof.plugins.evidence.host import parse as host
from clusterproof.plugins.evidence.host import parse_hardware as hardware
from clusterproof.plugins.evidence.host import parse_hardware_errors as hardware_errors
from clusterproof.plugins.evidence.host import parse_memory as memory
from clusterproof.plugins.evidence.host import parse_system as system
from clusterproof.plugins.evidence.kernel_log import parse as kernel_log
from clusterproof.plugins.evidence.kernel_log import parse_journal as journal
from clusterproof.plugins.evidence.network import parse as network
from clusterproof.plugins.evidence.network import parse_rdma as rdma
from clusterproof.plugins.evidence.network import parse_roce as roce
from clusterproof.plugins.evidence.neuron import parse as neuron
from clusterproof.plugins.evidence.parsing import Form
from clusterproof.plugins.evidence.pci import parse as pci
from clusterproof.plugins.evidence.perf import parse_dcgm as dcgmi
from clusterproof.plugins.evidence.perf import parse_dcgm_watches as dcgm_watches
from clusterproof.plugins.evidence.perf import parse_nccl as nccl_tests
from clusterproof.plugins.evidence.perf import parse_nccom as nccom
from clusterproof.plugins.evidence.slurm import parse as slurm
from clusterproof.plugins.evidence.software import parse as versions
from clusterproof.plugins.evidence.storage import parse as storage
from clusterproof.plugins.evidence.storage import parse_disks as disks
from clusterproof.plugins.evidence.storage import parse_findmnt as findmnt
from clusterproof.plugins.evidence.storage import parse_lsblk as lsblk
from clusterproof.plugins.evidence.storage import parse_mounts as mounts
from clusterproof.plugins.kubernetes import parse as kubernetes
from clusterproof.plugins.kubernetes import parse_get as kubectl_get

FORMS: tuple[Form, ...] = (
    *hardware.FORMS,
    *memory.FORMS,
    *hardware_errors.FORMS,
    *dcgmi.FORMS,
    *dcgm_watches.FORMS,
    *versions.FORMS,
    *aws.FORMS,
    *storage.FORMS,
    *disks.FORMS,
    *lsblk.FORMS,
    *host.FORMS,
    *imex.FORMS,
    *kernel_log.FORMS,
    *journal.FORMS,
    *network.FORMS,
    *mounts.FORMS,
    *findmnt.FORMS,
    *nccl_tests.FORMS,
    *nccom.FORMS,
    *neuron.FORMS,
    *pci.FORMS,
    *rdma.FORMS,
    *roce.FORMS,
    *kubernetes.FORMS,
    *kubectl_get.FORMS,
    *slurm.FORMS,
    *system.FORMS,
    *nvidia_smi_csv.FORMS,
    *nvidia_smi_lists.FORMS,
    *nvidia_smi_topo.FORMS,
    *nvidia_smi_q.FORMS,
    *nvidia_smi_table.FORMS,
)
