"""The JUnit format that Jenkins accepts."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

# What Jenkins' xUnit plugin allows (its junit-10.xsd): children and attributes by element; required ones begin with !.
JENKINS: dict[str, tuple[set[str], set[str]]] = {
    "testsuites": ({"testsuite"}, {"name", "time", "tests", "failures", "errors"}),
    "testsuite": (
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
        {"!name", "!tests", "!failures", "!errors", "group", "time", "skipped", "timestamp", "hostname", "id"},
    ),
    "properties": ({"property"}, set()),
    "property": (set(), {"!name", "!value"}),
    "testcase": (
        {"skipped", "error", "failure", "system-out", "system-err"},
        {"!name", "time", "classname", "group"},
    ),
    "failure": (set(), {"type", "message"}),
    "error": (set(), {"type", "message"}),
    "skipped": (set(), {"type", "message"}),
    "system-out": (set(), set()),
}
JENKINS_TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]{0,3})?")


def breaches(element: ET.Element) -> list[str]:
    """Everything that Jenkins would reject."""
    children, attributes = JENKINS[element.tag]
    required = {name[1:] for name in attributes if name.startswith("!")}
    messages = [f"{element.tag} has {child.tag}" for child in element if child.tag not in children]
    messages += [f"{element.tag} lacks {name}" for name in required - element.attrib.keys()]
    messages += [f"{element.tag} has {name}" for name in element.attrib.keys() - {n.lstrip("!") for n in attributes}]
    if not JENKINS_TIME.fullmatch(element.get("time", "") if element.tag.startswith("testsuite") else ""):
        messages.append(f"time {element.get('time')}")
    return messages + [breach for child in element for breach in breaches(child)]
