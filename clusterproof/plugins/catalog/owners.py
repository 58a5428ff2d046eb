"""Who a finding is routed to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import table
from clusterproof.plugins.core.record import field, record


@record
class Owner:
    """One owner skill. `team` is whose its findings are, in a word; `teams` the same by section, where it differs."""

    mark: str  # the pytest mark's name: hyperpod_node_debugger
    words: str
    source: str
    team: str
    teams: Mapping[str, str] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)  # "G": what the section is about

    def team_for(self, section: str) -> str:
        """Whose a finding of this section is: `hardware`."""
        return self.teams.get(section, self.team)

    @property
    def name(self) -> str:
        """The skill's name as its maintainers write it: `hyperpod-node-debugger`."""
        return self.mark.replace("_", "-")


@cache
def owners() -> Mapping[str, Owner]:
    """Every row of owners.toml by the name of its mark. Raises CatalogError."""
    return table(Owner, "owners.toml", "owner", key="mark")


def owner(mark: str) -> Owner | None:
    """The owner by the name of its mark, if there is one."""
    return owners().get(mark)
