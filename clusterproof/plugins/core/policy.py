"""A site's policy, and how it changes results."""

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

OWN_FILE = "clusterproof.toml"  # in the current folder, if no policy is named; else a table of the other
PYPROJECT = "pyproject.toml"

# What a verdict may be changed to. Nothing becomes a pass: an unwanted check is disabled until a date.
READINGS: Mapping[Verdict, tuple[Verdict, ...]] = {
    Verdict.FAIL: (Verdict.CONCERN,),
    Verdict.CONCERN: (Verdict.FAIL,),
    Verdict.INCOMPLETE: (Verdict.FAIL,),
    Verdict.NOT_APPLICABLE: (Verdict.FAIL,),
}


@record
class Disabled:
    """A check that a site has disabled, up to and including a day; only on these nodes, if any are named."""

    reason: str
    until: date
    nodes: frozenset[str] = frozenset()

    def is_active(self, today: date) -> bool:
        """Whether the rule has not yet expired."""
        return today <= self.until


@record
class Contact:
    """Whom a site wants to receive a kind of finding."""

    name: str
    contact: str = ""  # a chat room, a queue, a mail address
    link: str = ""

    @property
    def description(self) -> str:
        """`DC operations (#dc-ops, https://…)`."""
        more = ", ".join(filter(None, (self.contact, self.link)))
        return f"{self.name} ({more})" if more else self.name


@record
class Policy:
    """The contents of a policy file; an empty one changes nothing.

    `disabled` is by check id, `readings` by check id or owner skill: the verdict that each verdict is changed to.
    `versions`, `modules`, `libraries`, `services` and `sizes` are an image's golden manifest, each a rule by name; the
    sizes are for instance type `made_on`. `mounts` are required on every node, `checkpoints` are folders that jobs
    save to. `owners` is by team ("hardware") or owner skill; `names_skills` says whether reports name skills; `site` is
    the URL of the documentation, as `https://…/`. `ignored` says why a file in the folder is not used.
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
        """Whether it has any rule of a golden manifest."""
        return any((self.versions, self.modules, self.libraries, self.services, self.sizes))

    @property
    def today(self) -> date:
        """The day on which the policy is read."""
        from datetime import date  # most policies disable nothing

        return date(*self.day)

    def as_of_today(self) -> Policy:
        """The policy on this day: a process that runs for days outlasts exceptions."""
        today = time.localtime()[:3]
        return self if self.day == today else replace(self, day=today)

    def disables(self, check: str, node: str) -> Disabled | None:
        """The rule that disables a check on a node today, if any."""
        rule = self.disabled.get(check)
        return rule if rule and rule.is_active(self.today) and (not rule.nodes or node in rule.nodes) else None

    def verdict_of(self, check: str, owner: str, verdict: Verdict) -> Verdict:
        """The verdict that one of this check, with this owner, is changed to."""
        rules = (self.readings.get(key, {}) for key in (check, owner))
        return next((rule[verdict] for rule in rules if verdict in rule), verdict)

    def read(self, result: Result) -> Result:
        """A result after the policy is applied: its verdict, a message that fits it, and its contact.

        A rule for a check takes precedence over one for its owner.
        """
        rules = [(key, self.readings[key]) for key in (result.owner, result.check) if key in self.readings]
        if rules:
            findings = result.findings or (Finding(result.verdict, result.message, result.devices, result.cause),)
            read = tuple(_read(finding, rules) for finding in findings)
            result = result if read == findings else with_findings(result, grouped(read))
        return replace(result, team=self.team_of(result)) if result.verdict.is_finding else result

    def team_of(self, result: Result) -> str:
        """Who owns a finding, for people: the site's contact, else the skill where skills are used, else the team."""
        contact = self.owners.get(result.owner) or self.owners.get(result.team)
        if contact:
            return contact.description
        return result.skill if self.names_skills else result.team


def _read(finding: Finding, rules: Iterable[tuple[str, Mapping[Verdict, Verdict]]]) -> Finding:
    """A finding with the verdict of the last of these rules that applies."""
    read = finding
    for key, verdicts in rules:
        verdict = verdicts.get(finding.verdict)
        if verdict:
            message = f"{finding.message} (by policy: {finding.verdict.value} of {key} is {verdict.value})".strip()
            read = replace(finding, verdict=verdict, message=message)
    return read


def disabled_reason(rule: Disabled, source: str) -> str:
    """Why a disabled check was not run."""
    return f"disabled by {source} until {rule.until}: {rule.reason}"


NO_POLICY = Policy()
