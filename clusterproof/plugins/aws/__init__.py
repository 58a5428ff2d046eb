"""The AWS API: the account and region of a cluster, and what AWS reports about it.

Every call of the suite goes through here, and only calls in aws_actions.toml are possible.
"""

from __future__ import annotations

import base64
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from clusterproof.plugins.catalog.aws import aws_actions
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.strict import nearest

T = TypeVar("T")

ATTEMPTS = 8  # of one call, including throttled ones: adaptive retries slow the client to the rate that AWS allows
CONNECT_S, READ_S = 5, 30
MAX_PAGES = 200  # of one listing: 20,000 nodes
PIECE = 1 << 20  # bytes of an object
_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "NotAuthorized")
_THROTTLED = ("Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException")
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException")
_EXPIRED_OR_CLOCK = ("AuthFailure", "RequestExpired")  # EC2's codes for either


class AwsError(ClusterproofError):
    """A failed call; the message is one line, `code` is AWS's name of the error."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class AwsDenied(AwsError):  # noqa: N818 - what AWS calls it
    """A call that this identity may not make; `action` is the missing permission."""

    def __init__(self, action: str) -> None:
        super().__init__(f"{action} is not allowed to this identity; docs/aws.md has the policy", "AccessDenied")
        self.action = action


NO_CREDENTIALS, EXPIRED = "NoCredentials", "Expired"  # codes of an AwsError
NONE_HERE = "no AWS credentials here; expected some in the environment, ~/.aws, a role or --profile"


class Account:
    """An AWS account in one region and profile. Thread-safe.

    `throttled` is called, from any thread, with the action that AWS throttled and that is retried; by default a message
    is printed on standard error.
    """

    def __init__(self, region: str = "", profile: str = "", throttled: Callable[[str], None] | None = None) -> None:
        """Find region and credentials in the usual places. Raises AwsError if there are none."""
        import boto3  # takes 0.2 s, and is only needed for AWS clusters
        from botocore.exceptions import BotoCoreError

        try:
            self._session = boto3.Session(
                region_name=region or os.environ.get("AWS_REGION"),
                profile_name=profile or None,
                botocore_session=_with_models_kept(),
            )
            configured = self._session.region_name
        except BotoCoreError as problem:
            raise AwsError(_one_line(problem)) from None
        if not configured:
            raise AwsError("no AWS region; expected --region, AWS_REGION or one in the profile", "NoRegion")
        near = _region_meant(self._session, configured)
        if near:
            seen = f"no AWS region is called {configured!r:.40}{near}"
            expected = "expected --region or AWS_REGION, or a newer boto3 for a newer region"
            raise AwsError(f"{seen}; {expected}", "NoRegion")
        self.region: str = configured
        self._throttled = throttled or _say_once()
        self._clients: dict[str, Any] = {}
        self._answers: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()

    def require_credentials(self) -> None:
        """Raise AwsError if there are none, or only half of them; only a call shows whether they are valid."""
        with _errors_of("the AWS credentials"):
            credentials = self._session.get_credentials()
        if credentials is None:
            raise AwsError(NONE_HERE, NO_CREDENTIALS)

    def call(self, service: str, operation: str, **arguments: object) -> Mapping[str, Any]:
        """Make one call. Raises AwsDenied, AwsError; ValueError for a call that is not in aws_actions.toml."""
        action = _action(service, operation)
        with _errors_of(action):
            response: Mapping[str, Any] = getattr(self._client(service), operation)(**arguments)
            return response

    def listed(self, service: str, operation: str, key: str, **arguments: object) -> Iterator[Mapping[str, Any]]:
        """The entries under `key` of all pages. Raises as `call` does, even halfway."""
        action = _action(service, operation)
        with _errors_of(action):
            pages = self._client(service).get_paginator(operation).paginate(**arguments)
            for number, page in enumerate(pages):
                if number == MAX_PAGES:
                    raise AwsError(f"{action} returned more than {MAX_PAGES} pages; expected fewer", "TooMany")
                yield from page.get(key, ())

    def stored(self, bucket: str, key: str) -> Iterator[bytes]:
        """An S3 object in pieces. Raises as `call` does, even halfway."""
        with _errors_of(_action("s3", "get_object")):
            yield from self.call("s3", "get_object", Bucket=bucket, Key=key)["Body"].iter_chunks(PIECE)

    def endpoint(self, service: str) -> str:
        """The endpoint URL of a service in this region."""
        return str(self._client(service).meta.endpoint_url)

    def eks_token(self, cluster: str) -> str:
        """A bearer token for an EKS cluster, valid for 15 minutes: a signed GetCallerIdentity, which EKS sends to STS.

        Raises AwsError.
        """
        from botocore.signers import RequestSigner

        self.require_credentials()
        with _errors_of("sts:GetCallerIdentity"):
            client = self._client("sts")
            signer = RequestSigner(
                client.meta.service_model.service_id,
                self.region,
                "sts",
                "v4",
                self._session.get_credentials(),
                self._session.events,
            )
            url = signer.generate_presigned_url(
                {
                    "method": "GET",
                    "url": f"{client.meta.endpoint_url}/?Action=GetCallerIdentity&Version=2011-06-15",
                    "body": {},
                    "headers": {"x-k8s-aws-id": cluster},
                    "context": {},
                },
                region_name=self.region,
                expires_in=60,
                operation_name="",
            )
        return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")

    def once(self, what: str, ask: Callable[[], T]) -> T:
        """The result of `ask`, which only the first thread calls; all others, concurrent or later, get the same.

        Raises the same exception as `ask` to all of them.
        """
        with self._lock:
            answer, is_first = self._answers.get(what), what not in self._answers
            if answer is None:
                answer = self._answers[what] = Future()
        if is_first:
            try:
                answer.set_result(ask())
            except BaseException as problem:  # raised to every caller
                answer.set_exception(problem)
        result: T = answer.result()
        return result

    def _client(self, service: str) -> Any:
        with self._lock:
            if service not in self._clients:
                from botocore.config import Config

                timeouts = Config(
                    connect_timeout=CONNECT_S,
                    read_timeout=READ_S,
                    retries={"mode": "adaptive", "total_max_attempts": ATTEMPTS},
                )
                client = self._session.client(service, config=timeouts)
                client.meta.events.register("needs-retry.*.*", self._look_at_answer)
                self._clients[service] = client
            return self._clients[service]

    def _look_at_answer(self, response: Any = None, operation: Any = None, **_: object) -> None:
        code = response[1].get("Error", {}).get("Code") if response else ""
        if code in _THROTTLED and operation is not None:
            self._throttled(f"{operation.service_model.service_name}:{operation.name}")


def _say_once() -> Callable[[str], None]:
    """Reports throttling once for each action."""
    reported: set[str] = set()

    def say(action: str) -> None:
        if action not in reported:
            reported.add(action)
            sys.stderr.write(f"AWS throttles {action}; waiting for it\n")

    return say


def _with_models_kept() -> Any:
    """A botocore session that loads each service's model only once per process: EC2's takes 0.2 s."""
    from botocore.session import get_session

    session = get_session()
    session.register_component("data_loader", _models())
    return session


@cache
def _models() -> Any:
    from botocore.loaders import create_loader

    return create_loader()


def _region_meant(session: Any, region: str) -> str:
    """` (did you mean us-west-2?)` for an unknown region that is similar to a known one; else empty.

    One that differs in its number alone may be newer than boto3, which can ask it all the same.
    """
    known = [name for part in session.get_available_partitions() for name in session.get_available_regions("ec2", part)]
    area, _, number = region.rpartition("-")
    is_newer = number.isdecimal() and area in {name.rpartition("-")[0] for name in known}
    return "" if region in known or is_newer else nearest(region, known)


def _action(service: str, operation: str) -> str:
    row = aws_actions().get((service, operation))
    if row is None:
        raise ValueError(f"{service}.{operation} is not in aws_actions.toml: the suite may not call it")
    return row.action


@contextmanager
def _errors_of(action: str) -> Iterator[None]:
    """Converts botocore's exceptions to ours, each with a one-line message."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as problem:
        raise _of_service(action, problem.response.get("Error", {})) from None
    except NoCredentialsError:
        raise AwsError(NONE_HERE, NO_CREDENTIALS) from None
    except (BotoCoreError, ResponseParserError) as problem:
        raise AwsError(f"{action}: {_one_line(problem)}", type(problem).__name__) from None
    except (OSError, ValueError) as problem:  # of a file or program that boto3 is configured with
        kind = type(problem).__name__
        seen = f"{action}: {kind}: {_one_line(problem)}"
        raise AwsError(f"{seen}; expected credentials and settings of AWS that boto3 can use", kind) from None


def _of_service(action: str, error: Mapping[str, Any]) -> AwsError:
    code, message = str(error.get("Code", "")), _one_line(error.get("Message", ""))
    if code in _DENIED or code.startswith("AccessDenied"):
        return AwsDenied(action)
    if code in _EXPIRED:
        return AwsError(f"{action}: the credentials are not valid or have expired; sign in again", EXPIRED)
    if code in _EXPIRED_OR_CLOCK:
        seen = "the credentials are not valid or have expired, or this machine's clock is wrong"
        return AwsError(f"{action}: {seen}; sign in again, or set the clock", EXPIRED)
    if code in _THROTTLED:
        return AwsError(f"{action}: throttled by AWS {ATTEMPTS} times in a row; try again later", code)
    return AwsError(f"{action}: {code}: {message}", code)


def _one_line(problem: object) -> str:
    return " ".join(str(problem).split())[:300]
