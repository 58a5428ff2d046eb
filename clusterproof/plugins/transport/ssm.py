"""Reaches EC2 instances through SSM: one SendCommand for up to 50 of them, each answer fetched when it is ready."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from clusterproof.plugins.agent.program import MAX_ANSWER_BYTES
from clusterproof.plugins.aws import EXPIRED, NO_CREDENTIALS, Account, AwsDenied, AwsError
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport import Answer, Connection, Limits, Program, Unusable

DOCUMENT = "AWS-RunShellScript"
MAX_INSTANCES = 50  # instance ids that one SendCommand takes
BATCHES = 8  # in progress at once
LONGEST_PROGRAM = 60_000  # characters: Systems Manager takes 65,535 for all of a command's parameters
SHOWN_CHARACTERS = 24_000  # of an answer; the rest is only in S3
BESIDE_CHARACTERS = 1_000  # room for other output before or within an answer
MIN_DELIVERY_S = 30  # SendCommand's TimeoutSeconds
POLL_S = 1.0  # between checks for instances that have answered
REFUSED_INSTANCE = "InvalidInstanceId"  # the code for a whole command, where one instance has stopped meanwhile
WAITS = ("Pending", "InProgress", "Delayed", "Cancelling")
CUT_MARK = "--output truncated--"
_UNREACHED = {
    "Undeliverable": (Unreached.NOT_CONNECTED, "the command could not be delivered"),
    "DeliveryTimedOut": (Unreached.NOT_CONNECTED, "the command was not taken in time"),
    "ExecutionTimedOut": (Unreached.TIMED_OUT, "the probe did not end in its time"),
    "TimedOut": (Unreached.TIMED_OUT, "the probe did not end in its time"),
    "Terminated": (Unreached.API, "SSM ended the command, as too many others had failed: run again"),
    "InvalidPlatform": (Unreached.NO_PYTHON, "the instance does not run Linux"),
    "AccessDenied": (Unreached.AUTH, "the instance refused the command"),
    "Cancelled": (Unreached.API, "somebody cancelled the command: run again"),
}


class Ssm(Connection):
    """Runs the program with SendCommand."""

    takes_stdin = False

    def longest_program(self, _limits: Limits) -> int:
        """What one SendCommand accepts."""
        return LONGEST_PROGRAM

    def carries(self, limits: Limits) -> int:
        """What SSM shows of an answer, minus room for other output; unlimited if it goes to S3."""
        return 0 if limits.settings.get("ssm_output") else SHOWN_CHARACTERS - BESIDE_CHARACTERS

    def run(
        self,
        targets: Sequence[Target],
        program: Program,
        limits: Limits,
        answered: Callable[[Target, Answer], None],
    ) -> None:
        """Run `program` once on each target. Raises Unusable without an account."""
        try:
            account = Account(limits.settings.get("region", ""), limits.settings.get("profile", ""))
            agents = _agents(account, [target.address for target in targets])
        except AwsError as problem:
            raise Unusable(str(problem)) from None
        reached = [target for target in targets if agents.get(target.address) == ONLINE]
        for target in targets:
            state = agents.get(target.address)
            if state != ONLINE:
                detail = f"Systems Manager says {state} of its agent; expected {ONLINE}" if state else NOT_REGISTERED
                answered(target, Answer(unreached=Unreached.NOT_CONNECTED, detail=detail))
        size = min(MAX_INSTANCES, limits.fanout)  # of a batch: no instance waits for its turn while its time runs
        batches = [reached[first : first + size] for first in range(0, len(reached), size)]
        is_over = threading.Event()
        with ThreadPoolExecutor(BATCHES) as pool:
            try:
                list(pool.map(lambda batch: _run_batch(account, batch, program, limits, answered, is_over), batches))
            finally:
                is_over.set()  # interrupted: nobody waits for pending commands


ONLINE = "Online"
NOT_REGISTERED = "not registered with Systems Manager; expected its agent online, and an instance profile that lets it"


def _agents(account: Account, ids: Sequence[str]) -> Mapping[str, str]:
    """The state of the agents that are registered: SendCommand refuses a whole batch because of one not online."""
    states: dict[str, str] = {}
    for first in range(0, len(ids), MAX_INSTANCES):
        filters = [{"Key": "InstanceIds", "Values": list(ids[first : first + MAX_INSTANCES])}]
        listed = account.listed("ssm", "describe_instance_information", "InstanceInformationList", Filters=filters)
        states.update({str(row["InstanceId"]): str(row.get("PingStatus") or "nothing") for row in listed})
    return states


@dataclass(frozen=True, slots=True)
class _Sent:
    """A command in progress: its instances, and where its long answers go."""

    command_id: str
    targets: Mapping[str, Target]
    bucket: str
    prefix: str


def _run_batch(
    account: Account,
    batch: Sequence[Target],
    program: Program,
    limits: Limits,
    answered: Callable[[Target, Answer], None],
    is_over: threading.Event,
) -> None:
    started = time.monotonic()
    try:
        sent = _send(account, batch, program, limits)
    except AwsError as problem:
        if problem.code == REFUSED_INSTANCE and len(batch) > 1 and not is_over.is_set():
            half = len(batch) // 2
            for some in (batch[:half], batch[half:]):
                _run_batch(account, some, program, limits, answered, is_over)
            return
        for target in batch:
            answered(target, Answer(unreached=unreached_of(problem), detail=str(problem)))
        return
    deadline = time.monotonic() + MIN_DELIVERY_S + limits.connect_s + limits.answer_s
    waiting = dict(sent.targets)
    unlisted: AwsError | None = None  # why the last request did not show which have answered
    is_late = False
    while waiting and not _is_denied(unlisted) and not is_late:
        is_late = time.monotonic() >= deadline  # before the request: those before it may have taken long
        unlisted = _note_ended(account, sent, waiting, started, answered)
        if waiting and is_over.wait(POLL_S):
            return
    for target in waiting.values():
        answered(target, _unended(unlisted, time.monotonic() - started))


def _note_ended(
    account: Account,
    sent: _Sent,
    waiting: dict[str, Target],
    started: float,
    answered: Callable[[Target, Answer], None],
) -> AwsError | None:
    """Answer for the instances that are done, which then wait no more; returns why AWS did not list them, if so."""
    try:
        for row in account.listed("ssm", "list_command_invocations", "CommandInvocations", CommandId=sent.command_id):
            instance, status = str(row["InstanceId"]), str(row.get("StatusDetails") or row["Status"]).replace(" ", "")
            if status not in WAITS and instance in waiting:
                answered(waiting.pop(instance), _answer(account, sent, instance, status, time.monotonic() - started))
    except AwsError as problem:
        return problem
    return None


def _is_denied(problem: AwsError | None) -> bool:
    """Whether it makes no sense to repeat a request."""
    return problem is not None and unreached_of(problem) is Unreached.AUTH


def _unended(unlisted: AwsError | None, seconds: float) -> Answer:
    """The answer for an instance that has not answered in time, as far as AWS said which have."""
    if unlisted:
        return Answer(unreached=unreached_of(unlisted), detail=str(unlisted), seconds=seconds)
    return Answer(unreached=Unreached.TIMED_OUT, detail=f"no end after {seconds:.0f} s")


def _send(account: Account, batch: Sequence[Target], program: Program, limits: Limits) -> _Sent:
    """Send the command. Raises AwsError."""
    bucket, _, prefix = limits.settings.get("ssm_output", "").removeprefix("s3://").partition("/")
    output = {"OutputS3BucketName": bucket, "OutputS3KeyPrefix": prefix or "clusterproof"} if bucket else {}
    sent = account.call(
        "ssm",
        "send_command",
        InstanceIds=[target.address for target in batch],
        DocumentName=DOCUMENT,
        Comment="clusterproof: reads the state of the node",
        TimeoutSeconds=MIN_DELIVERY_S,
        MaxErrors="100%",  # one bad node does not keep the others from being asked
        Parameters={"commands": [program.command], "executionTimeout": [str(int(limits.answer_s) + 1)]},
        **output,
    )
    command_id = str(sent["Command"]["CommandId"])
    return _Sent(command_id, {target.address: target for target in batch}, bucket, prefix or "clusterproof")


def _answer(account: Account, sent: _Sent, instance: str, status: str, seconds: float) -> Answer:
    failure, why = _UNREACHED.get(status, (None, ""))
    if failure:
        return Answer(unreached=failure, detail=f"{why} ({status})", seconds=seconds)
    try:
        invocation = account.call("ssm", "get_command_invocation", CommandId=sent.command_id, InstanceId=instance)
    except AwsError as problem:
        return Answer(unreached=unreached_of(problem), detail=str(problem), seconds=seconds)
    shown = str(invocation.get("StandardOutputContent", ""))
    if not _is_cut(shown):
        return Answer((shown + str(invocation.get("StandardErrorContent", ""))).encode(), seconds=seconds)
    if not sent.bucket:
        return Answer(shown.encode(), Unreached.CUT, f"{LONGER}; give --ssm-output s3://BUCKET", seconds, too_long=True)
    try:
        return Answer(_stored(account, sent, instance), seconds=seconds)
    except AwsError as problem:
        return Answer(shown.encode(), Unreached.CUT, f"{LONGER}; of --ssm-output: {problem}", seconds)


LONGER = f"its answer is longer than the {SHOWN_CHARACTERS:,} characters that SSM shows"


def _stored(account: Account, sent: _Sent, instance: str) -> bytes:
    """The whole output from S3, which is not trusted: others may have write access there. Raises AwsError."""
    key = f"{sent.prefix}/{sent.command_id}/{instance}/awsrunShellScript/0.awsrunShellScript/stdout"
    output = bytearray()
    for piece in account.stored(sent.bucket, key):
        output += piece
        if len(output) > MAX_ANSWER_BYTES:
            break
    return bytes(output[:MAX_ANSWER_BYTES])


def _is_cut(output: str) -> bool:
    return len(output) >= SHOWN_CHARACTERS or output.rstrip().endswith(CUT_MARK)


def unreached_of(problem: AwsError) -> Unreached:
    """Why a node has no answer if a call for it failed: AWS's own failures are none of the node."""
    if isinstance(problem, AwsDenied) or problem.code in (EXPIRED, NO_CREDENTIALS):
        return Unreached.AUTH
    if problem.code in ("TargetNotConnected", REFUSED_INSTANCE):
        return Unreached.NOT_CONNECTED
    return Unreached.THROTTLED if "throttl" in str(problem).lower() else Unreached.API
