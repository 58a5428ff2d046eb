"""A site's policy, and what it makes of a result."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING

from clusterproof.plugins.core.record import field, record, replace
from clusterproof.plugins.core.result import SEVERITIES, Result
from clusterproof.plugins.core.verdict import Verdict

if TYPE_CHECKING:
    from clusterproof.plugins.catalog.instance_types import InstanceType

OWN_FILE = "clusterproof.toml"  # in the folder of the run, where no policy is named; else a table of the other
PYPROJECT = "pyproject.toml"

# What a verdict may be read as. Nothing becomes a pass: what a site does not want to see it disables, to a date.
READINGS: Mapping[Verdict, tuple[Verdict, ...]] = {
    Verdict.FAIL: (Verdict.CONCERN,),
    Verdict.CONCERN: (Verdict.FAIL,),
    Verdict.INCOMPLETE: (Verdict.FAIL,),
    Verdict.NOT_APPLICABLE: (Verdict.FAIL,),
}


@record
class Disabled:
    """A check that a site does without, up to and including a day."""

    reason: str
    until: date

    def holds(self, today: date) -> bool:
        """Whether that day has not passed."""
        return today <= self.until


@record
class Policy:
    """What a policy file says; an empty one changes nothing.

    `disabled` is by check id, `readings` by check id or owner skill: what each verdict is read as. `versions`,
    `modules`, `libraries`, `services` and `sizes` are the golden manifest of an image, each a rule by name; `made_on`
    is the instance type that its sizes are of. `mounts` is what every node must have mounted, `checkpoints` folders
    that jobs save to.
    """

    source: str = ""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    instance_types: Mapping[str, InstanceType] = field(default_factory=dict)
    expect: Mapping[str, int] = field(default_factory=dict)
    disabled: Mapping[str, Disabled] = field(default_factory=dict)
    readings: Mapping[str, Mapping[Verdict, Verdict]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)
    made_on: str = ""
    mounts: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()
    today: date = field(default_factory=date.today)

    def disables(self, check: str) -> Disabled | None:
        """The rule that takes a check out today, if there is one."""
        rule = self.disabled.get(check)
        return rule if rule and rule.holds(self.today) else None

    def read(self, result: Result) -> Result:
        """A result with the verdict that the site reads it as; its message then says so. The check's own rule wins."""
        for key in (result.check, result.owner):
            verdict = self.readings.get(key, {}).get(result.verdict)
            if verdict:
                words = f"(by policy: {result.verdict.value} of {key} is {verdict.value})"
                return replace(
                    result,
                    verdict=verdict,
                    severity=SEVERITIES.get(verdict, "none"),
                    message=f"{result.message} {words}".strip(),
                )
        return result


def words_of(rule: Disabled, source: str) -> str:
    """Why a disabled check was not run."""
    return f"disabled by {source} until {rule.until}: {rule.reason}"


NO_POLICY = Policy()
