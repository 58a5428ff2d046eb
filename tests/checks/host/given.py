"""A host check's result on a node beside others."""

from __future__ import annotations

from typing import Any

from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.core.result import Result
from tests.builders.evaluated import result_of
from tests.builders.recordings import boot, node

EC2 = {"vendor": "Amazon EC2", "product": "p5.48xlarge", "serial": ""}


def evaluated(check: str, *others: dict[str, Any], occasion: str = "preflight", **collectors: Any) -> Result:
    """A check's result on a node that reported this, beside others that reported that."""
    everyone = [
        node(f"n{number}", **{"boot": boot(), "platform": EC2} | values)
        for number, values in enumerate((collectors, *others))
    ]
    return result_of(f"host.{check}", *everyone, occasion=occasion, policy=NO_POLICY)
