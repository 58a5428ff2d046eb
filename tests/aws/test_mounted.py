"""Which file system a mount belongs to, from mount sources as nodes really show them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.evidence.aws.mounted_fsx import MAX_SOURCES, Source, as_setting, source_of, sources_of
from clusterproof.plugins.evidence.storage import collect_mounts as mounts
from tests.aws.storage import mounting
from tests.builders.recordings import node

ID = "fs-0123456789abcdef0"
DNS = f"{ID}.fsx.us-west-2.amazonaws.com"
LUSTRE = {
    "FileSystemId": ID,
    "FileSystemType": "LUSTRE",
    "DNSName": DNS,
    "LustreConfiguration": {"MountName": "oyuutbev"},
}
OPENZFS = {
    "FileSystemId": ID,
    "FileSystemType": "OPENZFS",
    "DNSName": DNS,
    "OpenZFSConfiguration": {"EndpointIpAddress": "10.0.4.7"},
}


@pytest.mark.parametrize(
    ("kind", "source", "system", "is_its"),
    [
        ("lustre", "10.1.71.197@tcp:/oyuutbev", LUSTRE, True),  # mounted by DNS name, yet shown by address
        ("lustre", "10.1.71.197@tcp:/oyuutbev/datasets", LUSTRE, True),
        ("lustre", "10.1.71.197@tcp:10.1.71.198@tcp:/oyuutbev", LUSTRE, True),
        ("lustre", "10.1.71.197@efa:/oyuutbev", LUSTRE, True),
        ("lustre", f"{DNS}@tcp:/oyuutbev", LUSTRE, True),
        ("lustre", "172.31.14.250@tcp:/fsx", LUSTRE, False),
        ("lustre", "172.31.14.250@tcp:/fsx", {**LUSTRE, "LustreConfiguration": {"MountName": "fsx"}}, True),
        ("lustre", "fs-0ffffffffffffffff.fsx.us-west-2.amazonaws.com@tcp:/oyuutbev", LUSTRE, False),
        ("lustre", "10.1.71.197@tcp:/", LUSTRE, False),
        ("lustre", "10.1.71.197@tcp:/oyuutbev", OPENZFS, False),
        ("lustre", "10.1.71.197@tcp:/oyuutbev", {"FileSystemId": ID, "LustreConfiguration": None}, False),
        ("nfs4", f"{DNS}:/fsx", OPENZFS, True),
        ("nfs4", f"{DNS}:/fsx/home", OPENZFS, True),
        ("nfs", f"{DNS}:/fsx", OPENZFS, True),
        ("nfs4", "10.0.4.7:/fsx", OPENZFS, True),
        ("nfs4", "10.0.4.8:/fsx", OPENZFS, False),
        ("nfs4", f"svm-0123456789abcdef0.{DNS}:/vol1", {"FileSystemId": ID, "FileSystemType": "ONTAP"}, True),
        ("nfs4", "fs-0ffffffffffffffff.fsx.us-west-2.amazonaws.com:/fsx", OPENZFS, False),
        ("nfs4", "fs-0123456789abcdef0.efs.us-west-2.amazonaws.com:/", {"FileSystemId": "fs-1"}, False),
    ],
)
def test_a_source_is_of_the_file_system_that_it_shows(
    kind: str, source: str, system: dict[str, Any], is_its: bool
) -> None:
    parsed = source_of(kind, source)
    assert parsed is not None
    assert parsed.is_of(system) is is_its


@pytest.mark.parametrize(
    ("kind", "source", "is_of_fsx"),
    [
        ("lustre", "10.1.71.197@tcp:/oyuutbev", True),
        ("nfs4", f"{DNS}:/fsx", True),
        ("nfs4", "fs-0123456789abcdef0.efs.us-west-2.amazonaws.com:/", False),
        ("nfs4", "10.0.4.7:/fsx", False),
        ("nfs", "filer7:/export", False),
    ],
)
def test_only_what_can_be_nothing_else_is_said_to_be_of_fsx(kind: str, source: str, is_of_fsx: bool) -> None:
    assert Source(kind, source).is_of_fsx is is_of_fsx


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("ext4", "/dev/root"),
        ("tmpfs", "tmpfs"),
        ("fuse.sshfs", "me@host:/home"),
        ("lustre", "/dev/mdt"),
        ("nfs4", "x" * 501 + ":/"),
        ("nfs4", "host:/a\nlustre b"),
    ],
)
def test_other_mounts_are_none_of_fsx(kind: str, source: str) -> None:
    assert source_of(kind, source) is None


@pytest.mark.parametrize(
    ("line", "system"),
    [
        ("62 1 0:51 / /fsx rw,noatime shared:9 - lustre 10.1.71.197@tcp:/oyuutbev rw,flock,lazystatfs", LUSTRE),
        (f"70 1 0:55 / /home rw,relatime shared:11 - nfs4 {DNS}:/fsx rw,vers=4.2,addr=10.0.4.7", OPENZFS),
    ],
)
def test_what_the_probe_reads_off_the_kernel_is_understood(line: str, system: dict[str, Any]) -> None:
    mount = mounts._mount(line)
    parsed = source_of(mount["type"], mount["source"])
    assert parsed is not None
    assert parsed.is_of(system)


def test_what_a_node_mounts_is_taken_from_its_evidence() -> None:
    evidence = node("gpu001", mounts=mounting(("lustre", "10.1.71.197@tcp:/oyuutbev", "/fsx")))
    assert list(sources_of(evidence)) == [Source("lustre", "10.1.71.197@tcp:/oyuutbev")]


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["lustre", "nfs4", "a@tcp:/b", ":/", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["mounts", "type", "source", "path"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json)
def test_whatever_a_node_reports_its_sources_are_read_without_an_error(data: object) -> None:
    sources = list(sources_of(node("gpu001", mounts={"mounts": data})))
    assert all(":/" in source.text for source in sources)


@given(st.text(max_size=40), st.sampled_from(["lustre", "nfs", "nfs4"]))
def test_every_source_survives_the_way_through_the_settings(text: str, kind: str) -> None:
    sources = list(sources_of(node("gpu001", mounts=mounting((kind, f"host:/{text}", "/x")))))
    lines = as_setting(sources).split("\n") if sources else []
    assert [Source(*line.split(" ", 1)) for line in lines] == sources
    assert bool(sources) == ("\n" not in text)


def test_only_so_many_sources_are_kept() -> None:
    many = [Source("nfs4", f"10.0.0.1:/{number}") for number in range(MAX_SOURCES + 5)]
    assert len(as_setting(many).split("\n")) == MAX_SOURCES
