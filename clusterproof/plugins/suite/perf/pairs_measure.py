"""A run's measurements between nodes: plans them, runs them through the cluster's launcher, stores and reads them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from clusterproof.plugins.benchmarks.launchers import Launcher, Measured, MeterCampaign, PairOrGroup, check_settings
from clusterproof.plugins.benchmarks.meters import Meter
from clusterproof.plugins.benchmarks.meters import baseline as site
from clusterproof.plugins.benchmarks.meters.baseline import BaselineError
from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
from clusterproof.plugins.benchmarks.pairwise.drive import Progress, drive, drive_groups
from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.benchmarks.pairwise.groups import GroupLimits, GroupPlan, plan_groups
from clusterproof.plugins.benchmarks.pairwise.journal import (
    Journal,
    JournalWriter,
    file_name,
    write,
)
from clusterproof.plugins.benchmarks.pairwise.redaction import shown_reading
from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pairs import NodeGroup, Reading, pair
from clusterproof.plugins.suite.perf.pairs_options import (
    PairOptions,
    baseline_figures,
    begun_before,
    journals_of,
    pairs_among,
    read_or_refuse,
    set_aside,
)
from clusterproof.plugins.suite.perf.pairs_planning import launcher_for, meter_of, parts, planned
from clusterproof.plugins.transport import Connection, Limits, Unusable

MARGIN_S = 120.0  # reserved beyond the budget, for a measurement that starts at its end
OF_GROUPS = ("groups", "no_groups")  # what a journal says of groups: a run that resumes it chooses anew
MAX_RANKS = 64  # ranks whose own network log is stored with their result


@dataclass(frozen=True)
class MeasuringSetup:
    """How nodes are reached, and where measurements are stored. `real` maps displayed node names to real ones.

    `unavailable` are nodes that cannot be loaded now, and why.
    """

    cluster: Cluster  # with real names
    connection: Connection
    limits: Limits
    folder: Path
    real: Mapping[str, str]
    unavailable: Mapping[str, str]
    text: Callable[[str], str]  # makes a text safe to show
    say: Callable[[str], None]
    again: str  # the command that continues an interrupted campaign


def measure(options: PairOptions, cluster: ClusterFacts, setup: MeasuringSetup) -> PairwiseRun:
    """Measure the pairs of a cluster, and store everything in `setup.folder`. Raises pytest.UsageError."""
    figures = baseline_figures(options.baseline)
    begun = begun_before(options.resume)
    campaigns: list[Campaign] = []
    failed: list[str] = []
    pairs_among(options.named_pairs, cluster.nodes.keys())  # unknown ones are better refused by their name
    for number, nodes in enumerate(parts(list(cluster.nodes.values()), options.named_pairs)):
        journal = planned(nodes, options, cluster, setup.unavailable)
        if options.named_pairs and not journal.plan.asked:
            continue
        if options.resume:
            journal = _resumed(journal, begun, options.resume)
        path = setup.folder / file_name(number)
        try:
            if not campaigns:
                set_aside(setup.folder, options.resume)
            begun_as = Campaign(journal, figures, cluster.catalog)
            campaigns.append(replace(begun_as, journal=_driven(begun_as, path, options, setup, nodes)))
        except Unusable as problem:
            failed.append(f"nothing could be measured between nodes: {problem}")  # nodes of another type may be
        except OSError as problem:
            why = f"{path}: {problem.strerror or problem}; expected a place for the measurements, as --record DIR"
            return PairwiseRun(tuple(campaigns), why_not="; ".join(dict.fromkeys([*failed, why])))
    none = [] if campaigns else ["no two nodes are alike; expected a pair to measure"]
    run = PairwiseRun(tuple(campaigns), why_not="; ".join(dict.fromkeys(failed or none)))
    if options.save_baseline and (campaigns or not failed):
        _save(options.save_baseline, run)
    return run


def replayed(folder: Path, catalog: Catalog, baseline: str | None = None) -> PairwiseRun:
    """The measurements of pairs in a recording. Raises pytest.UsageError."""
    figures = baseline_figures(Path(baseline) if baseline else None)
    campaigns = tuple(Campaign(read_or_refuse(path), figures, catalog) for path in journals_of(folder))
    return PairwiseRun(campaigns, why_not="" if campaigns else "the recording has no measurements between nodes")


def write_journals(run: PairwiseRun, folder: Path) -> None:
    """Write the measurements where workers read them. Raises OSError."""
    for number, campaign in enumerate(run.campaigns):
        write(folder / file_name(number), campaign.journal)


def _driven(begun: Campaign, path: Path, options: PairOptions, setup: MeasuringSetup, nodes: Sequence[Node]) -> Journal:
    """Run one campaign. Raises Unusable, OSError."""
    journal = begun.journal
    meter, settings = meter_of(nodes, options)
    if not any(journal.plan.first):
        return replace(journal, ended="fewer than two of its nodes could be reached")
    own = {setup.real[name] for name in journal.plan.nodes if name not in journal.plan.absent}
    targets = tuple(target for target in setup.cluster.targets if target.name in own)
    campaign = MeterCampaign(
        meter,
        settings,
        replace(setup.cluster, targets=targets),
        setup.limits,
        run_s=options.run_s,
        whole_s=options.budget_s + options.run_s + MARGIN_S,
        connection=setup.connection,
    )
    check_settings(campaign)
    if journal.measurements and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, journal)  # earlier measurements belong to this recording too
    writer = JournalWriter(path, journal)
    driven: Journal | None = None
    try:
        setup.say(_announcement(journal, meter, options, path))
        with launcher_for(campaign, options.launcher) as launcher:
            started = time.monotonic()
            renamed = _Renamed(launcher, setup)
            shown = _round_by_round(setup.say)
            has_groups = bool(options.groups)
            driven = drive(journal, writer, renamed, options.budget_s, options.at_once, shown, groups_follow=has_groups)
            if has_groups:
                left_s = options.budget_s - (time.monotonic() - started)
                driven = _grouped(replace(begun, journal=driven), writer, renamed, replace(options, budget_s=left_s))
    except KeyboardInterrupt:
        setup.say(f"pairs: interrupted; what was measured is kept; to go on: {setup.again}")
        raise
    except (Unusable, OSError) as problem:
        if driven and isinstance(problem, Unusable):
            setup.say(f"pairs: no longer measuring, but the nodes may still be reserved: {setup.text(str(problem))}")
        else:
            driven = _so_far(journal, path, writer, problem)
    finally:
        with suppress(OSError):  # each line is on the disk by now, or why it is not was said
            writer.close()
    if driven.ended:
        setup.say(f"pairs: left out: {driven.ended}; to go on: {setup.again}")
    return driven


def _so_far(journal: Journal, path: Path, writer: JournalWriter, problem: Unusable | OSError) -> Journal:
    """The campaign as far as it was measured and stored before this. Raises it if nothing was."""
    kept = read_or_refuse(path)
    if not kept.measurements:
        raise problem
    reason = f"{path}: {problem.strerror or problem}" if isinstance(problem, OSError) else str(problem)
    why = f"nothing more could be measured: {reason}"
    with suppress(OSError):
        writer.finish(why)
    plan = replace(journal.plan, first_rounds=kept.plan.first_rounds)
    measured = replace(journal, plan=plan, measurements=kept.measurements, ended=why)
    return replace(measured, group_plan=kept.group_plan, groups=kept.groups)


def _grouped(pairs: Campaign, writer: JournalWriter, renamed: _Renamed, options: PairOptions) -> Journal:
    """Measure groups of nodes whose pairs succeeded and showed no fault. What cannot be measured is reported."""
    plan = plan_groups(options.groups, pairs.nodes_for_groups, pairs.journal.plan.places, 2 * options.at_once)
    if why_not := pairs.journal.about.get("no_groups"):
        plan = GroupPlan((), left_out=str(why_not))
    if plan.left_out:
        renamed.setup.say(f"groups: left out: {plan.left_out}")
    limits = GroupLimits(
        slower=pairs.catalog.threshold("pairwise.slower"),
        least_share=pairs.catalog.threshold("pairwise.least_share"),
        least_of_pairs=pairs.catalog.threshold("pairwise.least_of_pairs"),
        pairs_gb_per_s=pairs.pairs_gb_per_s,
    )
    full = renamed.launcher.campaign

    def begin(groups: Sequence[PairOrGroup]) -> None:
        first = tuple(groups[0])
        is_brief = len(first) * full.settings.ranks_per_node > MAX_RANKS
        renamed.launcher.campaign = replace(full, settings=replace(full.settings, is_brief=is_brief))
        more = f" and {number_of(len(groups) - 1, 'more group')} at once" if len(groups) > 1 else ""
        renamed.setup.say(f"groups: measuring {len(first)} nodes together, {fold(first)}{more}")

    return drive_groups(pairs.journal, writer, renamed, plan, limits, options.budget_s, begin)


def _announcement(journal: Journal, meter: Meter, options: PairOptions, path: Path) -> str:
    made = journal.plan
    pairs = len({pair for pairs in made.first for pair in pairs})
    done = f", {len(journal.measurements)} measured before" if journal.measurements else ""
    return (
        f"measuring {pairs} pairs of {fold(node for node in made.nodes if node not in made.absent)} with {meter.name}, "
        f"then suspects again (seed {made.seed}, at most {options.budget_s / 60:.3g} min{done}); kept in {path}"
    )


def _round_by_round(say: Callable[[str], None]) -> Callable[[Progress], None]:
    """Says each round as it begins."""
    last = 0

    def show(progress: Progress) -> None:
        nonlocal last
        if progress.round != last:
            last = progress.round
            left = f"about {progress.seconds_left:.0f} s left at most"
            say(f"pairs: round {progress.round} of at most {progress.rounds}, {progress.measured} measured, {left}")

    return show


@dataclass(frozen=True)
class _Renamed:
    """A launcher that translates displayed node names."""

    launcher: Launcher
    setup: MeasuringSetup

    def measure(self, together: Sequence[PairOrGroup], measured: Measured) -> None:
        """Measure under the real names, report under those displayed."""
        real = {_under(self.setup.real, group): group for group in together}
        shown_names = {name: shown for shown, name in self.setup.real.items()}

        def hide(nodes: PairOrGroup, reading: Reading) -> None:
            measured(real[nodes], shown_reading(reading, shown_names, self.setup.text))

        try:
            self.launcher.measure(list(real), hide)
        except Unusable as problem:
            raise Unusable(self.setup.text(str(problem))) from None


def _under(names: Mapping[str, str], nodes: PairOrGroup) -> PairOrGroup:
    named = tuple(names[node] for node in nodes)
    return NodeGroup(named) if isinstance(nodes, NodeGroup) else pair(*named)


def _resumed(journal: Journal, begun: Sequence[Journal], path: Path) -> Journal:
    """The interrupted campaign of these nodes. Raises pytest.UsageError if there is none."""
    before = next((earlier for earlier in begun if earlier.plan.nodes == journal.plan.nodes), None)
    if before is None:
        raise pytest.UsageError(
            f"--resume {path}: no measurements of {fold(journal.plan.nodes)} there; expected the same nodes"
        )
    if any(before.about.get(name) != journal.about.get(name) for name in ("meter", "key")):
        raise pytest.UsageError(
            f"--resume {path}: it was measured with {before.about.get('meter')} otherwise; expected the same "
            "meter, size and ranks"
        )
    kept = {name: value for name, value in before.about.items() if name not in OF_GROUPS}
    chosen = {name: value for name, value in journal.about.items() if name in OF_GROUPS}
    plan = replace(before.plan, absent=journal.plan.absent)
    return replace(before, about=kept | chosen, absent=journal.absent, plan=plan)


def _save(path: Path, run: PairwiseRun) -> None:
    measured = []
    for campaign in run.campaigns:
        if key := campaign.key:
            measured += [(key, campaign.stack, of_pair.reading) for of_pair in campaign.journal.measurements]
            for of_group in campaign.journal.groups:
                key_of_group = replace(key, nodes=len(of_group.group.nodes))
                measured.append((key_of_group, campaign.stack, of_group.reading))
    try:
        site.write(path, site.figures_of(measured))
    except BaselineError as problem:
        raise pytest.UsageError(str(problem)) from None
