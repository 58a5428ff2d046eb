"""Any text as a capture: of random characters, of the words of many formats, and of lines of `nvidia-smi`."""

from __future__ import annotations

from hypothesis import strategies as st

from clusterproof.plugins.evidence.parsing import CaptureError, Form


def understood(form: Form, text: str) -> None:
    """Read any text with a format: it yields collectors, or an error."""
    if not form.recognises(text):
        return
    try:
        raw = form.read(text)
    except CaptureError as problem:
        raw, words = {}, str(problem)
    else:
        words = "it was read"
    assert words
    assert all(isinstance(name, str) and isinstance(value, dict) for name, value in raw.items())


PIECES = """
| + # : = [ ] ( ) { } , / * 0 1 32 -1 1.5 N/A (null) unlimited Filesystem Mounted on Use% Size UUID bytes Used
NodeName= State= Gres=gpu:8 CPUTot= CA 'mlx5_0' Port 1: size count type time algbw busbw #wrong size(B) count(elems)
NVRM: Xid PASS Fail GPU Diagnostic Result hca_id: link provider: domain: efa-rdm MemTotal: kB Mem: total used free
"MESSAGE" "_TRANSPORT" : "kernel" __CURSOR= Conditions: Taints: Capacity: Ready True
"""
LINES = (
    "GPU 0: H100 (UUID: GPU-a)",
    "GPU 00000000:53:00.0",
    " Link 0: 25 GB/s",
    " Link 0: Replay Errors: 3",
    "    ECC Errors",
    "        Volatile",
    "            DRAM Uncorrectable : 5",
    "==============NVSMI LOG==============",
    "Attached GPUs : 2",
    "| NVIDIA-SMI 5 Driver Version: 5 |",
    "|   0  A   On  |   00000000:83:00.0 Off |    0 |",
    "| N/A  28C  P0  77W /  700W |  0MiB / 1MiB |  0%  Default |",
    "| Processes: |",
    "index, uuid, pci.bus_id",
    "0, GPU-a, 00000000:53:00.0",
    "<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id='a'>",
    "<pci><pci_bus_id>1</pci_bus_id></pci></gpu></nvidia_smi_log>",
    "GPU0 GPU1 CPU Affinity",
    "GPU0 X NV18",
    "Unable to determine the device handle for GPU 0000:53:00.0: Unknown Error",
    "$ nvidia-smi -q",
)
WORDS = st.sampled_from((*PIECES.split(), "\n", "\t", "  ", "\nName: gpu001\nRoles: <none>\n"))
TEXT = (
    st.text(max_size=400)
    | st.lists(WORDS, max_size=80).map(" ".join)
    | st.lists(st.sampled_from(LINES) | st.text(max_size=30), max_size=12).map("\n".join)
)
