"""Where a version is expected, a host name is not kept, though each of its parts could belong to one."""

from __future__ import annotations

import pytest

from clusterproof.plugins.redaction.wording import Wording


@pytest.mark.parametrize("name", ["ec2-54-23-11-9.compute-1.amazonaws.com", "ip-10-7-13-212.ec2.internal"])
def test_a_host_of_awss_is_replaced_as_a_whole(name: str) -> None:
    assert Wording(lambda kind, _: f"{kind}-1").version(name) == "address-1"


@pytest.mark.parametrize("version", ["580.126.09", "1.22.0amzn1.0", "2.26.5-1+cuda12", "5.15.0-1051-aws"])
def test_a_version_stays(version: str) -> None:
    assert Wording(lambda kind, _: f"{kind}-1").version(version) == version
