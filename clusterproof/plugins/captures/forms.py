"""Every form of output that a capture may hold."""

from __future__ import annotations

from clusterproof.plugins.evidence.dcgm import parse as dcgmi
from clusterproof.plugins.evidence.ec2 import parse as ec2
from clusterproof.plugins.evidence.gpu import parse_imex as imex
from clusterproof.plugins.evidence.gpu import parse_nvidia_smi_csv as nvidia_smi_csv
from clusterproof.plugins.evidence.gpu import parse_nvidia_smi_lists as nvidia_smi_lists
from clusterproof.plugins.evidence.gpu import parse_nvidia_smi_messages as nvidia_smi_messages
from clusterproof.plugins.evidence.gpu import parse_nvidia_smi_q as nvidia_smi_q
from clusterproof.plugins.evidence.gpu import parse_nvidia_smi_table as nvidia_smi_table
from clusterproof.plugins.evidence.gpu import parse_nvidia_smi_topo as nvidia_smi_topo
from clusterproof.plugins.evidence.gpu import parse_nvidia_smi_xml as nvidia_smi_xml
from clusterproof.plugins.evidence.host import parse as host
from clusterproof.plugins.evidence.host import parse_system as system
from clusterproof.plugins.evidence.kernel_log import parse as kernel_log
from clusterproof.plugins.evidence.lustre import parse as lustre
from clusterproof.plugins.evidence.memory import parse as memory
from clusterproof.plugins.evidence.nccl import parse as nccl_tests
from clusterproof.plugins.evidence.nccl import parse_nccom as nccom
from clusterproof.plugins.evidence.network import parse as network
from clusterproof.plugins.evidence.network import parse_rdma as rdma
from clusterproof.plugins.evidence.neuron import parse as neuron
from clusterproof.plugins.evidence.parsing import Form
from clusterproof.plugins.evidence.pci import parse as pci
from clusterproof.plugins.evidence.pci import parse_config as pci_config
from clusterproof.plugins.evidence.processors import parse as cpus
from clusterproof.plugins.evidence.slurm import parse as slurm
from clusterproof.plugins.evidence.software import parse as versions
from clusterproof.plugins.evidence.storage import parse_disks as disks
from clusterproof.plugins.evidence.storage import parse_fstab as fstab
from clusterproof.plugins.evidence.storage import parse_mounts as mounts

FORMS: tuple[Form, ...] = (
    *cpus.FORMS,
    *dcgmi.FORMS,
    *versions.FORMS,
    *ec2.FORMS,
    *fstab.FORMS,
    *disks.FORMS,
    *host.FORMS,
    *imex.FORMS,
    *kernel_log.FORMS,
    *lustre.FORMS,
    *memory.FORMS,
    *network.FORMS,
    *mounts.FORMS,
    *nccl_tests.FORMS,
    *nccom.FORMS,
    *neuron.FORMS,
    *pci.FORMS,
    *pci_config.FORMS,
    *rdma.FORMS,
    *slurm.FORMS,
    *system.FORMS,
    *nvidia_smi_csv.FORMS,
    *nvidia_smi_lists.FORMS,
    *nvidia_smi_messages.FORMS,
    *nvidia_smi_q.FORMS,
    *nvidia_smi_table.FORMS,
    *nvidia_smi_topo.FORMS,
    *nvidia_smi_xml.FORMS,
)
