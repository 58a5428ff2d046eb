"""Messages of PyTorch, NCCL and launchers, in three generations: the oldest first."""

from __future__ import annotations

from tests.case.stories import LabelledCase

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 88, in main\n    step(batch)\n'
IB12 = (
    "NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 32, vendor err 129",
    "NCCL WARN NET/IB : Got completion from peer 10.0.0.3<40041> with error 12, opcode 32600, len 0, vendor err 129",
    (
        "NCCL WARN NET/IB: Got completion from peer 10.0.0.3<40041> with status=IBV_WC_RETRY_EXC_ERR(12) "
        "opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send hca mlx5_4"
    ),
)
IB5 = tuple(line.replace("error 12", "error 5").replace("RETRY_EXC_ERR(12)", "WR_FLUSH_ERR(5)") for line in IB12)
PEER = (
    "NCCL WARN Net : Connection closed by remote peer",
    "NCCL WARN socketProgressOpt: Call to recv from 10.0.0.3<41001> failed : Connection reset by peer",
    "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3356, remote process exited or there was a network error",
)
CAUGHT = "Watchdog caught collective operation timeout: WorkNCCL"
OF_WORK = "SeqNum=412, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000"
RAN = "ran for {ms} milliseconds before timing out."
WATCHDOG = (
    f"[Rank {{rank}}] {CAUGHT}(OpType=ALLREDUCE, Timeout(ms)=600000) {RAN}",
    f"[Rank {{rank}}] {CAUGHT}({OF_WORK}) {RAN}",
    f"[PG ID 0 PG GUID 0(default_pg) Rank {{rank}}] {CAUGHT}({OF_WORK}) {RAN}",
)
AFTER_WATCHDOG = (
    "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, data may be wrong.",
    "Timeout at NCCL work: 412, last enqueued NCCL work: 414, last completed NCCL work: 411.",
    "failure detected by watchdog at work sequence id: 412 PG status: last enqueued work: 414, last completed: 411",
)
NCCL_CUDA = (
    "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:911, unhandled cuda error, NCCL version 2.7.8",
    "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1269, unhandled cuda error, NCCL version 2.14.3",
    "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, unhandled cuda error (run with NCCL_DEBUG=INFO)",
)
STORE = (
    "RuntimeError: Broken pipe",
    "[c10d] The client socket has failed to connect: sendBytes failed on SocketImpl(fd=84)",
    'Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early)',
)
_CLOSING = "Sending process 4120 closing signal SIGTERM"
CLOSING = (
    f"WARNING:torch.distributed.elastic.multiprocessing.api:{_CLOSING}",
    f"[WARNING] torch.distributed.elastic.multiprocessing.api: [WARNING] {_CLOSING}",
    f"W torch/distributed/elastic/multiprocessing/api.py:900] {_CLOSING}",
)


def filled(text: str, case: LabelledCase, when: str) -> str:
    """A story's text with its names and its generation's messages filled in."""
    generation = case.circumstance.generation
    names = {f"n{number}": case.node(f"n{number}") for number in range(1, 5)}
    phrases = {"traceback": TRACEBACK, "ib12": IB12[generation], "ib5": IB5[generation], "peer": PEER[generation]}
    for name, value in {**names, **phrases, "nccl_cuda": NCCL_CUDA[generation], "iso": when}.items():
        text = text.replace(f"{{{name}}}", value)
    return text
