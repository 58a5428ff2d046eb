"""A site's policy: thresholds, exceptions and contacts, and how they change a result."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from clusterproof.plugins.core.cluster import InstanceType
from clusterproof.plugins.core.record import field, record, replace
from clusterproof.plugins.core.result import Finding, Result, grouped, with_findings
from clusterproof.plugins.core.verdict import Verdict

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from datetime import date

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
    """A check that a site disables until a day, on some nodes or all."""

    reason: str
    until: date
    nodes: frozenset[str] = frozenset()

    def holds(self, today: date) -> bool:
        """Whether that day has not passed."""
        return today <= self.until


@record
class Contact:
    """Who is told of a kind of finding: a name, and further fields of the policy."""

    name: str
    contact: str = ""  # a chat room, a queue, a mail address
    link: str = ""

    @property
    def words(self) -> str:
        """`DC operations (#dc-ops, https://…)`."""
        more = ", ".join(filter(None, (self.contact, self.link)))
        return f"{self.name} ({more})" if more else self.name


@record
class Policy:
    """The contents of a policy file; an empty one changes nothing.

    `disabled` is by check id, `readings` by check id or owner skill: what each verdict is read as. `versions`,
    `modules`, `libraries`, `services` and `sizes` are the golden manifest of an image, each a rule by name; `made_on`
    is the instance type that its sizes are of. `mounts` is what every node must have mounted, `checkpoints` folders
    that jobs save to. `owners` is by team ("hardware") or owner skill; `names_skills` where the skills are at home;
    `site` is where the documentation stands, as `https://…/`. `ignored` says why a file in the folder is not this one.
    """

    source: str = ""
    ignored: str = ""
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
    owners: Mapping[str, Contact] = field(default_factory=dict)
    names_skills: bool = False
    site: str = ""
    day: tuple[int, ...] = field(default_factory=lambda: time.localtime()[:3])

    @property
    def has_manifest(self) -> bool:
        """Whether it has a rule of a golden manifest."""
        return any((self.versions, self.modules, self.libraries, self.services, self.sizes))

    @property
    def today(self) -> date:
        """The day on which it is read."""
        from datetime import date  # most policies disable nothing

        return date(*self.day)

    def disables(self, check: str, node: str) -> Disabled | None:
        """The rule that takes a check out on a node today, if there is one."""
        rule = self.disabled.get(check)
        return rule if rule and rule.holds(self.today) and (not rule.nodes or node in rule.nodes) else None

    def read(self, result: Result) -> Result:
        """A result as the site reads it: its verdict, of which its message then speaks, and whose it is.

        The rule for a check stands before that for its owner.
        """
        if result.verdict.is_finding:
            result = replace(result, team=self.team_of(result))
        rules = [(key, self.readings[key]) for key in (result.owner, result.check) if key in self.readings]
        if not rules:
            return result
        said = result.findings or (Finding(result.verdict, result.message, result.devices, result.cause),)
        read = tuple(_read(finding, rules) for finding in said)
        return result if read == said else with_findings(result, grouped(read))

    def team_of(self, result: Result) -> str:
        """Whose a finding is, for people: as the site says, the skill where those are at home, else a word."""
        contact = self.owners.get(result.owner) or self.owners.get(result.team)
        if contact:
            return contact.words
        return result.skill if self.names_skills else result.team


def _read(finding: Finding, rules: Iterable[tuple[str, Mapping[Verdict, Verdict]]]) -> Finding:
    """A finding as the last of these rules that speaks of its verdict reads it."""
    read = finding
    for key, verdicts in rules:
        verdict = verdicts.get(finding.verdict)
        if verdict:
            message = f"{finding.message} (by policy: {finding.verdict.value} of {key} is {verdict.value})".strip()
            read = replace(finding, verdict=verdict, message=message)
    return read


def words_of(rule: Disabled, source: str) -> str:
    """Why a disabled check was not run."""
    return f"disabled by {source} until {rule.until}: {rule.reason}"


NO_POLICY = Policy()
