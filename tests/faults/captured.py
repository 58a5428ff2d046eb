"""Faults in captures collected by hand, with the verdicts that they change."""

from __future__ import annotations

from tests.faults.captured_fault import CapturedFault
from tests.faults.captured_tools import OF_TOOLS
from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, NA
from tests.testbed.outputs import (
    NCCL_NETWORK,
    NCCL_ROWS,
    NCCL_SUMMARY,
    P5,
    SCONTROL,
    TRN1,
    dcgm_json,
    dcgm_table,
    dmesg,
    nccl_log,
    nccom_log,
)

UNCORRECTABLE = "Cuda failure 'uncorrectable ECC error encountered'"
DCGM_XID = "Detected XID {} for GPU 3 Please consult the documentation for details of this XID."
FAULTS = (
    *OF_TOOLS,
    CapturedFault(
        "dcgmi: one GPU fails the memory test",
        {
            "dcgmi-diag.txt": dcgm_table(
                memory=("Pass - GPUs: 0, 1, 2, 4, 5, 6, 7", "Fail - GPU: 3"), warning="GPU 3 ECC"
            )
        },
        {"gpu.dcgm_diag": FAIL},
        "GPU Memory on GPU 3: fail: GPU 3 ECC; expected every test to pass",
    ),
    CapturedFault(
        "dcgmi -j of DCGM 4: a GPU to isolate",
        {"dcgmi-diag.json": dcgm_json("Fail", severity=2, warning="row remapping has failed")},
        {"gpu.dcgm_diag": FAIL},
        "memory on GPU 3: fail (isolate: take the GPU out of use, and replace the node): row remapping has failed",
    ),
    CapturedFault(
        "dcgmi -j of DCGM 3: a GPU to reset",
        {"dcgmi-diag.json": dcgm_json("Fail", severity=6, warning="needs a reset", dcgm=3)},
        {"gpu.dcgm_diag": FAIL},
        "memory on GPU 3: fail (reset: reset the GPU): needs a reset",
    ),
    CapturedFault(
        "dcgmi: a test that fails for a setting",
        {"dcgmi-diag.json": dcgm_json("Fail", severity=5, warning="persistence mode is disabled")},
        {"gpu.dcgm_diag": FAIL},
        "(config: mend the node's configuration)",
    ),
    CapturedFault(
        "dcgmi: a run that failed before one that passed",
        {"dcgmi-diag-monday.txt": dcgm_table(memory=("Fail - All",))},
        {"gpu.dcgm_diag": FAIL},
        "GPU Memory: fail",
    ),
    CapturedFault(
        "dcgmi: a warning",
        {"dcgmi-diag.json": dcgm_json("Warn", severity=1, warning="NVLink errors")},
        {"gpu.dcgm_diag": CONCERN},
        "memory on GPU 3: warn (monitor: keep an eye on it): NVLink errors",
    ),
    CapturedFault(
        "dcgmi: a test that fails for an Xid of an application",
        {"dcgmi-diag.json": dcgm_json("Fail", severity=4, warning=DCGM_XID.format(45))},
        {"gpu.dcgm_diag": CONCERN},
        "memory on GPU 3: fail (triage: look for the cause with the named test alone): Detected XID 45 for GPU 3",
    ),
    CapturedFault(
        "dcgmi: a test that fails for an Xid of the hardware",
        {"dcgmi-diag.json": dcgm_json("Fail", severity=4, warning=DCGM_XID.format(48))},
        {"gpu.dcgm_diag": FAIL},
        "Detected XID 48 for GPU 3",
    ),
    CapturedFault(
        "dcgmi: a test that was skipped",
        {"dcgmi-diag.json": dcgm_json("Skip", severity=2, warning="ECC is not active")},
        {"gpu.dcgm_diag": INCOMPLETE},
        "memory on GPU 3: skip",
    ),
    CapturedFault(
        "dcgmi: all tests pass, and the exit status is 205",
        {"dcgmi-diag.json": f"{dcgm_json()}\nexit code: 205\n"},
        {"gpu.dcgm_diag": INCOMPLETE},
        "every test passed, but dcgmi exited with status 205; expected 0",
    ),
    CapturedFault(
        "dcgmi: a table that ends too early",
        {"dcgmi-diag.txt": dcgm_table()[:900]},
        {"gpu.dcgm_diag": INCOMPLETE},
        "the dcgmi diag log stops after",
    ),
    CapturedFault(
        "dcgmi -j: JSON that ends too early",
        {"dcgmi-diag.json": dcgm_json()[:400]},
        {"gpu.dcgm_diag": INCOMPLETE},
        "stops after software",
    ),
    CapturedFault(
        "dcgmi -j: JSON that ends behind a test that failed",
        {"dcgmi-diag.json": dcgm_json("Fail", severity=2, warning='a "}" in memory')[:-120]},
        {"gpu.dcgm_diag": FAIL},
        'a "}" in memory; expected every test to pass\nincomplete: the dcgmi diag log stops after memory',
    ),
    CapturedFault(
        "dcgmi -j: the diagnostic could not run",
        {"dcgmi-diag.json": '{"DCGM Diagnostic": {"version": "4.2.3", "runtime_error": "the host engine is busy"}}'},
        {"gpu.dcgm_diag": INCOMPLETE},
        "DCGM could not run its diagnostic: the host engine is busy",
    ),
    CapturedFault(
        "nccl: TCP in the place of EFA",
        {"nccl-all_reduce.log": nccl_log(network="NCCL INFO Using network Socket\n")},
        {"network.nccl_transport": FAIL},
        "NCCL used network Socket; expected EFA",
    ),
    CapturedFault(
        "nccl: libfabric over TCP",
        {
            "nccl-all_reduce.log": nccl_log(
                network=NCCL_NETWORK.replace("is efa, fabric is efa-direct", "is tcp;ofi_rxm")
            )
        },
        {"network.nccl_transport": FAIL},
        "NCCL used provider tcp;ofi_rxm; expected EFA",
    ),
    CapturedFault(
        "nccl: half of the EFA devices",
        {"nccl-all_reduce.log": nccl_log(network=NCCL_NETWORK.replace("found 32 nics", "found 16 nics"))},
        {"network.nccl_transport": CONCERN},
        "NCCL used EFA with 16 of 32 devices; expected all",
    ),
    CapturedFault(
        "nccl: a log without NCCL_DEBUG",
        {"nccl-all_reduce.log": nccl_log(network="")},
        {"network.nccl_transport": INCOMPLETE},
        "0 NCCL log lines, but none says which network it used; expected a run with NCCL_DEBUG=INFO",
    ),
    CapturedFault(
        "nccl: a training job over TCP",
        {"nccl-train.log": "gpu001:77:77 [0] NCCL INFO Using network Socket\nstep 1 loss 3.2\n"},
        {"network.nccl_transport": FAIL},
        "NCCL used network Socket",
    ),
    CapturedFault(
        "nccl: wrong values",
        {"nccl-all_reduce.log": nccl_log(rows=NCCL_ROWS.replace("45.21      0", "45.21      3"))},
        {"network.nccl_correct": FAIL},
        "3 wrong values at 1048576 bytes; expected 0",
    ),
    CapturedFault(
        "nccl: values out of bounds",
        {"nccl-all_reduce.log": nccl_log(summary=NCCL_SUMMARY.replace("0 OK", "2 FAILED"))},
        {"network.nccl_correct": FAIL},
        "out of bounds values: 2 FAILED; expected 0 OK",
    ),
    CapturedFault(
        "nccl: a run that failed after its last size",
        {"nccl-all_reduce.log": nccl_log(summary=f"{NCCL_SUMMARY} .. gpu001 pid 77: Test failure common.cu:1127\n")},
        {"network.nccl_correct": FAIL},
        "nccl-tests ended with .. gpu001 pid 77: Test failure common.cu:1127; expected no failure",
    ),
    CapturedFault(
        "nccl: a bus bandwidth that nccl-tests call too low",
        {"nccl-all_reduce.log": nccl_log(summary=NCCL_SUMMARY.replace("301.107", "21.5 FAILED"))},
        {"network.nccl_correct": FAIL},
        "nccl-tests ended with # Avg bus bandwidth    : 21.5 FAILED; expected no failure",
    ),
    CapturedFault(
        "nccl: a run that did not check its results",
        {
            "nccl-all_reduce.log": nccl_log(
                rows=NCCL_ROWS.replace("     0\n", "   N/A\n").replace("      0  ", "    N/A  ")
            )
        },
        {"network.nccl_correct": INCOMPLETE},
        "sizes were not checked; expected a run with -c 1",
    ),
    CapturedFault(
        "nccl: a run that ended in its first size",
        {"nccl-all_reduce.log": nccl_log(rows="", summary=" .. gpu001 pid 77: Test failure common.cu:1454\n")},
        {"network.nccl_correct": INCOMPLETE},
        "all_reduce_perf measured nothing: .. gpu001 pid 77: Test failure common.cu:1454",
    ),
    CapturedFault(
        "nccl: a log that ends with the error of a GPU",
        {
            "nccl-all_reduce.log": nccl_log(
                summary="gpu002:701:733 [3] misc/strongstream.cc:395 NCCL WARN " + UNCORRECTABLE
            )
        },
        {"network.nccl_correct": INCOMPLETE},
        f"the log ends after 1073741824 bytes: gpu002:701:733 [3] misc/strongstream.cc:395 NCCL WARN {UNCORRECTABLE}",
    ),
    CapturedFault(
        "nccl: a log that ends too early",
        {"nccl-all_reduce.log": nccl_log(summary="")},
        {"network.nccl_correct": INCOMPLETE},
        "the log ends after 1073741824 bytes",
    ),
    CapturedFault(
        "nccom-test: an error of the runtime",
        {"nccom-test.log": "nccom-test -r 32 allr\nERROR: NRT_EXEC_HW_ERR_COLLECTIVES on nd 3\n"},
        {"neuron.nccom": FAIL},
        "NRT_EXEC_HW_ERR_COLLECTIVES",
        healthy=TRN1,
    ),
    CapturedFault(
        "nccom-test: a log that ends too early",
        {"nccom-test.log": nccom_log(average="")},
        {"neuron.nccom": INCOMPLETE},
        "expected its line `Avg bus bandwidth`",
        healthy=TRN1,
    ),
    CapturedFault(
        "nccom-test: numbers, and an exit status that is not 0",
        {"nccom-test.log": f"{nccom_log()}exit: 1\n"},
        {"neuron.nccom": INCOMPLETE},
        "nccom-test exited with status 1",
        healthy=TRN1,
    ),
    CapturedFault(
        "slurm: a drained node",
        {
            "scontrol.txt": SCONTROL.replace("State=IDLE", "State=IDLE+DRAIN").replace(
                "   Extra=", "   Reason=Action:Replace [root@2026-07-22T23:31:17]\n   Extra="
            )
        },
        {"control_plane.slurm_nodes": FAIL},
        "Slurm reports it as IDLE+DRAIN (Action:Replace, by root at 2026-07-22T23:31:17); expected a node that takes",
    ),
    CapturedFault(
        "slurm: a node that is down",
        {"scontrol.txt": SCONTROL.replace("State=IDLE", "State=DOWN*")},
        {"control_plane.slurm_nodes": FAIL},
        "Slurm reports it as DOWN*; expected",
    ),
    CapturedFault(
        "slurm: a node with fewer GPUs than slurm.conf says",
        {"scontrol.txt": SCONTROL.replace("State=IDLE", "State=IDLE+INVALID_REG")},
        {"control_plane.slurm_nodes": FAIL},
        "Slurm reports it as IDLE+INVALID_REG; expected a node that takes jobs",
    ),
    CapturedFault(
        "slurm: a failing node in sinfo",
        {
            "scontrol.txt": "",
            "sinfo.txt": "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu*  up  infinite  1  fail gpu001\n",
        },
        {"control_plane.slurm_nodes": FAIL},
        "Slurm reports it as FAIL; expected",
    ),
    CapturedFault(
        "slurm: a slurmd that does not answer",
        {"scontrol.txt": SCONTROL.replace("State=IDLE", "State=IDLE+NOT_RESPONDING")},
        {"control_plane.slurm_nodes": CONCERN},
        "slurmctld gets no response from it (IDLE+NOT_RESPONDING)",
    ),
    CapturedFault(
        "slurm: GRES with half of the GPUs",
        {"scontrol.txt": SCONTROL.replace("gpu:h100:8", "gpu:h100:4")},
        {"control_plane.slurm_nodes": CONCERN},
        "GRES gpu:h100:4(S:0-1); expected 8 GPUs",
    ),
    CapturedFault(
        "slurm: an answer about other nodes",
        {"scontrol.txt": "".join(SCONTROL.replace("gpu001", f"gpu{number:03}") for number in (7, 8))},
        {"control_plane.slurm_nodes": INCOMPLETE},
        "Slurm lists 2 nodes, and gpu001 is not among them",
    ),
    CapturedFault(
        "slurm: nobody asked it",
        {"scontrol.txt": ""},
        {"control_plane.slurm_nodes": NA},
        "no output of scontrol or sinfo was captured",
    ),
    CapturedFault(
        "df: a full root volume",
        {"df.txt": P5["df.txt"].replace("203056560  59000000  144056560  30%", "203056560 193000000   10056560  96%")},
        {"host.root_volume": FAIL},
        "/ is 95 % full; expected less than 90 %",
    ),
    CapturedFault(
        "dmesg: a GPU that fell off the bus",
        {
            "dmesg.txt": dmesg(
                "NVRM: Xid (PCI:0000:64:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
            )
        },
        {"gpu.no_xid": FAIL},
        "Xid 79",
    ),
)
