"""What `fi_info` prints, alone or of all ranks of mpirun and srun."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.evidence.form import Form
from clusterproof.plugins.evidence.network.facts_libfabric import error

MAX_OUTPUT = 64 * 1024

_PROVIDER = re.compile(
    r"^(?:\[\d{1,6},\d{1,6}\]<std(?:out|err)>:|\d{1,6}: )?[ \t]{0,8}(?:provider|domain):[ \t]{1,8}\S", re.MULTILINE
)


def is_fi_info(text: str) -> bool:
    """Whether it lists providers as fi_info does, or says that there is none."""
    return (bool(_PROVIDER.search(text)) and "fabric" in text) or bool(error(text[:MAX_OUTPUT]))


def read(text: str) -> Mapping[str, object]:
    """The collector `libfabric`; the exit status is not known."""
    return {"libfabric": {"command": "fi_info", "output": text[:MAX_OUTPUT]}}


FORMS = (Form("fi_info", is_fi_info, read),)
