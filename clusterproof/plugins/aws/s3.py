"""Downloads the objects under an S3 prefix as files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from clusterproof.plugins.aws import Account, AwsError

S3 = "s3://"
MAX_OBJECTS = 20_000
MAX_BYTES = 64 << 30  # in total


def fetched(account: Account, url: str, folder: Path) -> Path:
    """The folder with all objects under `s3://BUCKET/PREFIX`, or the file if the prefix is an object's key.

    It is named after the last component of the prefix. Raises AwsError.
    """
    bucket, _, prefix = url.removeprefix(S3).partition("/")
    if not bucket:
        raise AwsError(f"{url}: no bucket; expected s3://BUCKET/PREFIX", "NoBucket")
    root = folder / (PurePosixPath(prefix).name or bucket)
    size = 0
    for number, listed in enumerate(_objects(account, bucket, prefix)):
        size += int(listed["Size"])
        if number >= MAX_OBJECTS or size > MAX_BYTES:
            raise AwsError(
                f"{url}: more than {MAX_OBJECTS:,} objects or {MAX_BYTES >> 30} GiB; expected one run", "TooMany"
            )
        _fetch(account, bucket, str(listed["Key"]), _path_for(root, str(listed["Key"]), prefix))
    if not size:
        raise AwsError(f"{url}: no object there; expected the files of a run", "NoSuchKey")
    return root


def _objects(account: Account, bucket: str, prefix: str) -> Iterator[Mapping[str, Any]]:
    """The object with key `prefix`, or those below it; not keys that merely start with the same characters."""
    for listed in account.listed("s3", "list_objects_v2", "Contents", Bucket=bucket, Prefix=prefix):
        rest = str(listed["Key"]).removeprefix(prefix)
        if int(listed["Size"]) and (not rest or not prefix or prefix.endswith("/") or rest.startswith("/")):
            yield listed


def _path_for(root: Path, key: str, prefix: str) -> Path:
    """The path for an object: never outside of the folder, whatever its key."""
    parts = PurePosixPath(key.removeprefix(prefix).lstrip("/")).parts
    if any(part in ("..", ".") or "\0" in part for part in parts):
        raise AwsError(f"{key[:100]!r}: no name of a file; expected one without '..'", "BadKey")
    return root.joinpath(*parts)


def _fetch(account: Account, bucket: str, key: str, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            for piece in account.stored(bucket, key):
                file.write(piece)
    except OSError as wrong:
        raise AwsError(f"s3://{bucket}/{key}: {wrong.strerror or wrong}; expected room for a copy", "NoRoom") from None
