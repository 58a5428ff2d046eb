"""Records of `scontrol show node`, wrapped by terminals and pasted by users."""

from __future__ import annotations

import re
import textwrap

import pytest

from clusterproof.plugins.evidence.slurm.parse_scontrol import node_of, records_in
from tests.testbed.outputs import SCONTROL

STAMP = "[root@2026-07-22T23:31:17]"
RECORD = f"{SCONTROL.rstrip()}\n   Reason=Kill task failed on GPU 3, see ticket RMA-12345 of Monday {STAMP}\n"
TWO = RECORD.replace("State=IDLE", "State=IDLE+DRAIN") + "\n" + RECORD.replace("gpu001", "gpu002")
IN_ONE_LINE = "".join(f"{' '.join(record.split())}\n" for record in TWO.split("\n\n"))


def on_terminal(text: str, width: int) -> str:
    """A text copied from a terminal that wraps at this width."""
    lines = (line[at : at + width].rstrip() for line in text.split("\n") for at in range(0, len(line) or 1, width))
    return "\n".join(lines)


@pytest.mark.parametrize("shown", [TWO, IN_ONE_LINE])
@pytest.mark.parametrize("width", [*range(21, 131), 178, 237])
def test_a_wrapped_record_says_what_it_says_unwrapped(shown: str, width: int) -> None:
    records, rest = records_in(on_terminal(shown, width))
    assert [fields_of(record) for record in records] == [fields_of(record) for record in records_in(shown)[0]]
    assert not rest.strip()


def fields_of(record: str) -> dict[str, str]:
    """A record's content, without the blanks and key names that a terminal's wrapping may damage."""
    return {key: str(value).replace(" ", "") for key, value in node_of(record).items() if key != "host"}


@pytest.mark.parametrize("shown", [TWO, IN_ONE_LINE])
@pytest.mark.parametrize("width", [50, 59, 72, 80, 100])
def test_a_record_wrapped_at_blanks_keeps_each_of_them(shown: str, width: int) -> None:
    wrapped = "\n".join(part for line in shown.split("\n") for part in textwrap.wrap(line, width) or [""])
    assert list(map(node_of, records_in(wrapped)[0])) == list(map(node_of, records_in(shown)[0]))


@pytest.mark.parametrize(
    "pasted",
    [
        re.sub(r"^ +", "", TWO, flags=re.MULTILINE),  # pasted into a chat or ticket
        TWO.replace("   State", "\n   State").replace("   Reason", "\n   Reason"),
        on_terminal(TWO, 80),
        textwrap.indent(TWO, "  ").replace("  NodeName", "NodeName"),
    ],
)
def test_a_record_without_indentation_and_with_blank_lines_is_whole(pasted: str) -> None:
    nodes = list(map(node_of, records_in(pasted)[0]))
    assert [(node["name"], node["state"]) for node in nodes] == [("gpu001", "IDLE+DRAIN"), ("gpu002", "IDLE")]
    assert {(node["reason"], node["reason_user"]) for node in nodes} == {
        ("Kill task failed on GPU 3, see ticket RMA-12345 of Monday", "root")
    }


@pytest.mark.parametrize("record", [RECORD, IN_ONE_LINE])
@pytest.mark.parametrize(
    "output",
    [
        "==============NVSMI LOG==============\n    Driver Version                        : 550.54.15\n",
        "[   13.500000] NVRM: Xid (PCI:0000:53:00): 48, pid=1, name=a, DBE of a GPU that has more than enough words\n",
        "JobId=7 JobName=train\n   UserId=bob(1000) MCS_label=N/A\n   JobState=FAILED Reason=NonZeroExitCode\n",
        "PartitionName=gpu\n   AllowGroups=ALL State=DOWN TotalNodes=4\n",
        "               total        used        free\nMem:            2015         100        1900\n",
        "53:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev ff)\n",
        'NAME="Ubuntu"\nVERSION_ID="22.04"\n',
    ],
)
def test_what_stands_below_a_record_is_none_of_it(record: str, output: str) -> None:
    records, rest = records_in(record + output)
    assert records == records_in(record)[0]
    assert output in rest
