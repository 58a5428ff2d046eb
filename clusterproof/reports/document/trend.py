"""The last runs in a history: fit nodes, recurring findings, and busbw per node."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from html import escape
from itertools import accumulate, pairwise

from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.document import Section, of_nodes
from clusterproof.reports.history import FOUND, Entry, Past, PastRun
from clusterproof.reports.history.changes import GONE, NEW
from clusterproof.reports.history.trends import Trend, trends
from clusterproof.reports.run import Run

MAX_RUNS = 20
MAX_ROWS = 40  # of findings, and of nodes
MAX_NODES = 200  # characters of a nodeset
MAX_NAME = 60
FLAPS = 3  # changes from which on a finding counts as flapping
MAX_NAMED = 10  # nodes that flap, and findings that are new or gone
MAX_IN_SHORT = 600  # characters
BAR, GAP, HEIGHT = 28, 6, 90  # px
SPARK_WIDTH, SPARK_HEIGHT = 160, 24
# The verdict of each run, oldest first, empty if it was not evaluated; and whether it found something.
Story = tuple[tuple[str, bool | None], ...]
_NOT_FIT = (Verdict.FAIL, Verdict.INCOMPLETE)
_CLASSES = {Verdict.PASS: "pass", Verdict.NOT_APPLICABLE: "na"}
_SIGNS = {Verdict.PASS: "·", Verdict.NOT_APPLICABLE: "–"}


def trend_section(run: Run) -> Section | None:
    """The section, if there are at least two runs."""
    past = run.past
    if past is None or len(past.runs) < 2:
        return None
    others = {result.node for result in run.results if not result.is_of_node}
    parts = (_bars(past, counts(past, run.nodes, others)), _flapping_rows(past), _busbw(past))
    return Section("trend", f"The last {len(past.runs)} runs", "".join(parts))


def _day(run: PastRun) -> str:
    return f"{datetime.fromtimestamp(run.began, timezone.utc):%Y-%m-%d %H:%M}"


def counts(past: Past, nodes: Collection[str] = (), others: Collection[str] = ()) -> list[tuple[int, int, int]]:
    """The numbers of failed, unproven and fit nodes in each run.

    A history has only names: `nodes` are known nodes, `others` other subjects, such as a training run.
    """
    clusters = {run.cluster for run in past.runs}
    worst: dict[int, dict[str, Verdict]] = defaultdict(dict)
    for (_, node), track in past.tracks.items():
        if node not in nodes and (node in others or node in clusters or "~" in node):
            continue
        for entry in track:
            if entry.verdict in _NOT_FIT and worst[entry.run].get(node) is not Verdict.FAIL:
                worst[entry.run][node] = entry.verdict
    shown = []
    for run in past.runs:
        verdicts = list(worst[run.number].values())
        failed, open_ = verdicts.count(Verdict.FAIL), verdicts.count(Verdict.INCOMPLETE)
        shown.append((failed, open_, max(0, run.nodes - failed - open_)))
    return shown


def _bars(past: Past, bars: Sequence[tuple[int, int, int]]) -> str:
    """A bar for each run: failed above not proven above fit."""
    most = max(sum(bar) for bar in bars) or 1
    drawn = "".join(_bar(number, run, bar, most) for number, (run, bar) in enumerate(zip(past.runs, bars, strict=True)))
    width = len(bars) * (BAR + GAP)
    fit = ", ".join(str(bar[2]) for bar in bars)
    legend = "".join(
        f'<span><span class="cell {name}">{sign}</span> {word}</span>'
        for name, sign, word in (("F", "F", "failed"), ("I", "I", "not proven"), ("pass", "·", "fit"))
    )
    size = f'viewBox="0 0 {width} {HEIGHT + 34}" width="{width}" height="{HEIGHT + 34}"'
    label = f"fit nodes in each run, the oldest first: {fit}"
    return (
        f'<p class="heat-legend">{legend}</p>'
        f'<div class="scroll"><svg class="trend" role="img" aria-label="{label}" {size}>'
        f'{drawn}</svg></div><p class="facts">{_day(past.runs[0])} to {_day(past.runs[-1])} UTC; '
        "the number is that of the fit nodes</p>"
    )


def _bar(number: int, run: PastRun, bar: tuple[int, int, int], most: int) -> str:
    failed, open_, fit = bar
    x, y = number * (BAR + GAP), HEIGHT + 16.0
    parts = []
    for name, count in (("pass", fit), ("I", open_), ("F", failed)):
        high = HEIGHT * count / most
        y -= high
        if count:
            parts.append(f'<path class="{name}" d="M{x} {y:.1f}h{BAR}v{high:.1f}h-{BAR}z"/>')
    nodes = number_of(run.nodes, "node")
    title = f"{_day(run)} UTC, {run.occasion}: {fit} fit, {failed} failed, {open_} not proven of {nodes}"
    day = f"{datetime.fromtimestamp(run.began, timezone.utc):%m-%d}"
    return (
        f"<g><title>{escape(printable(title, MAX_NODES), quote=False)}</title>{''.join(parts)}"
        f'<text x="{x + BAR / 2:g}" y="{y - 4:.1f}">{fit}</text>'
        f'<text class="at" x="{x + BAR / 2:g}" y="{HEIGHT + 30}">{day}</text></g>'
    )


def _flapping_rows(past: Past) -> str:
    """A row for each check and its nodes with the same sequence, those with most changes first."""
    stories: dict[tuple[str, Story], list[str]] = defaultdict(list)
    for (check, node), track in past.tracks.items():
        story = _story(past.runs, track)
        if any(is_found for _, is_found in story):
            stories[check, story].append(node)
    rows = sorted(stories.items(), key=lambda row: (-_changes(row[0][1]), -len(row[1]), row[0][0]))
    if not rows:
        return "<p>Nothing failed in these runs, and nothing was of concern.</p>"
    runs = "".join(
        f'<th scope="col"><span title="{_day(run)} UTC">{-age or "now"}</span></th>' for age, run in _ages(past.runs)
    )
    body = "".join(_row(check, story, nodes) for (check, story), nodes in rows[:MAX_ROWS])
    more = f"<p>… and {len(rows) - MAX_ROWS} more</p>" if len(rows) > MAX_ROWS else ""
    return (
        f'<h3>Findings that come and go</h3>{_in_short(stories)}<div class="scroll"><table class="stories"><thead><tr>'
        f'<th scope="col">check</th><th scope="col">nodes</th><th scope="col">now</th>{runs}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{more}"
    )


def counted(named: Sequence[str]) -> str:
    """As many as there is room for, and how many more there are."""
    ends = accumulate(len(entry) + 2 for entry in named)
    fit = max(1, min(MAX_NAMED, sum(end <= MAX_IN_SHORT for end in ends)))
    more = f" and {len(named) - fit} more" if len(named) > fit else ""
    return f"{printable(', '.join(named[:fit]), MAX_IN_SHORT)}{more}"


def _in_short(stories: Mapping[tuple[str, Story], Sequence[str]]) -> str:
    """What is new or gone in the last run, and the nodes on which findings flap, the most frequent first."""
    of_kind: dict[str, list[str]] = defaultdict(list)
    changes: Counter[str] = Counter()
    for (check, story), nodes in stories.items():
        of_kind[_state(story).partition(",")[0]].append(f"{check} on {within(fold(nodes), MAX_NODES // 2)}")
        if _changes(story) >= FLAPS:
            changes.update(dict.fromkeys(nodes, _changes(story)))
    flapping = [f"{node} ({count} changes)" for node, count in changes.most_common()]
    rows = (("new", of_kind[NEW]), ("gone", of_kind[GONE]), ("nodes that flap", flapping))
    entries = "".join(f"<dt>{word}</dt><dd>{escape(counted(named))}</dd>" for word, named in rows if named)
    return f"<dl>{entries}</dl>" if entries else ""


def _state(story: Story) -> str:
    """The state of a finding after the last run: `new`, `for 3 runs`, `gone`; and the number of changes if it flaps.

    A run that did not measure it leaves it as it was.
    """
    stands: list[bool] = []
    for _, is_found in story:
        stands.append((bool(stands) and stands[-1]) if is_found is None else is_found)
    ages = next((age for age, is_there in enumerate(reversed(stands)) if not is_there), len(stands))
    state = NEW if ages == 1 else f"for {ages} runs" if ages else GONE if len(stands) > 1 and stands[-2] else ""
    flaps = f"{_changes(story)} changes" if _changes(story) >= FLAPS else ""
    return ", ".join(filter(None, (state, flaps)))


def _is_found(entry: Entry) -> bool | None:
    """Whether a run found something, or left a finding as it was; None if it did not measure it."""
    if entry.verdict is Verdict.INCOMPLETE:
        return True if entry.stands in FOUND else None
    return entry.verdict in FOUND


def _ages(runs: Sequence[PastRun]) -> Iterator[tuple[int, PastRun]]:
    return ((len(runs) - 1 - number, run) for number, run in enumerate(runs))


def _story(runs: Sequence[PastRun], track: Sequence[Entry]) -> Story:
    """What each run found; a first run that did not measure it has what stood before."""
    entries = {entry.run: entry for entry in track}
    stood = next((_is_found(entry) for entry in track if entry.run < runs[0].number), None)
    told = ((entries.get(run.number), stood if run is runs[0] else None) for run in runs)
    return tuple((entry.verdict.value, _is_found(entry)) if entry else ("", before) for entry, before in told)


def _changes(story: Story) -> int:
    """How often it appeared or disappeared; runs that did not measure it do not count."""
    is_finding = [is_found for _, is_found in story if is_found is not None]
    return sum(now != before for before, now in pairwise(is_finding))


def _row(check: str, story: Story, nodes: Sequence[str]) -> str:
    cells = "".join(_cell(Verdict(word)) if word else "<td></td>" for word, _ in story)
    where = escape(printable(within(fold(nodes), MAX_NODES)))
    name, state = escape(printable(check, MAX_NAME)), _state(story)
    heads = f'<th scope="row">{name}</th><td class="nodes">{where}</td><td class="state">{state}</td>'
    return f"<tr{of_nodes(nodes)}>{heads}{cells}</tr>"


def _cell(verdict: Verdict) -> str:
    name = _CLASSES.get(verdict, verdict.letter)
    return f'<td class="{name}"><span title="{verdict.value}">{_SIGNS.get(verdict, verdict.letter)}</span></td>'


def _busbw(past: Past) -> str:
    """A line for each node and measurement, the largest decrease first."""
    shown = [trend for trend in trends(past) if len(trend.values) > 1]
    if not shown:
        return ""
    worst = sorted(shown, key=lambda trend: trend.change)[:MAX_ROWS]
    body = "".join(map(_line, worst))
    more = f"<p>… and {len(shown) - MAX_ROWS} more, which changed less</p>" if len(shown) > MAX_ROWS else ""
    heads = "".join(
        f'<th scope="col">{word}</th>' for word in ("node", "over the runs", "last", "usual", "change", "what")
    )
    return (
        '<h3>busbw per node</h3><div class="scroll">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>{more}"
    )


def _line(trend: Trend) -> str:
    unit = escape(printable(trend.unit, MAX_NAME))
    node, name = escape(printable(trend.node, MAX_NAME)), escape(printable(trend.name, MAX_NODES))
    return (
        f'<tr{of_nodes([trend.node])}><th scope="row">{node}</th><td>{_spark(trend)}</td>'
        f"<td>{trend.last:.4g} {unit}</td><td>{trend.median_before:.4g} {unit}</td>"
        f"<td>{trend.change * 100:+.1f} %</td><td>{name}</td></tr>"
    )


def _spark(trend: Trend) -> str:
    top = max(trend.values) or 1.0
    low = top / 2 if min(trend.values) > top / 2 else 0.0
    step = SPARK_WIDTH / (len(trend.values) - 1)
    points = "L".join(
        f"{number * step:.1f} {2 + (SPARK_HEIGHT - 4) * (1 - (value - low) / (top - low)):.1f}"
        for number, value in enumerate(trend.values)
    )
    label = ", ".join(f"{value:.4g}" for value in trend.values)
    return (
        f'<svg class="spark" role="img" aria-label="{label}" viewBox="0 0 {SPARK_WIDTH} {SPARK_HEIGHT}" '
        f'width="{SPARK_WIDTH}" height="{SPARK_HEIGHT}"><path class="line" d="M{points}"/></svg>'
    )
