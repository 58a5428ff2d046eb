"""The report forms of other plugins that the command line asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.result import Result

if TYPE_CHECKING:
    from clusterproof.plugins.options.parsed import Options
    from clusterproof.plugins.suite.forms.history import HistoryForm

OF_ANOTHER_TIME = ("replay", "capture", "run")  # connections whose evidence says nothing new of the cluster


def forms(config: pytest.Config, cluster: Cluster, results: Sequence[Result]) -> Iterator[tuple[str, object]]:
    """The plugin object of each, by name; `results` grows while the checks run."""
    is_redacted = bool(config.option.redact)
    if config.getoption("xmlpath", None):
        from clusterproof.plugins.suite.forms.junit import junit_form

        form = junit_form(config, is_redacted, results)
        if form:
            yield "junit", form
    if config.getoption("htmlpath", None):
        from clusterproof.plugins.suite.forms.html import HtmlForm

        yield "html", HtmlForm(config, cluster, results, is_redacted)
    if config.option.notify:
        from clusterproof.plugins.suite.forms.notify import NotifyForm

        yield "notify", NotifyForm(config, cluster, results, config.option.notify)
    if config.option.cloudwatch and not config.option.collectonly:
        from clusterproof.plugins.suite.forms.cloudwatch import CloudWatchForm

        yield "cloudwatch", CloudWatchForm(config, cluster, results, config.option.cloudwatch)
    if config.option.k8s_gate and not config.option.collectonly:
        from clusterproof.plugins.suite.forms.k8s_gate import K8sGateForm

        yield "k8s-gate", K8sGateForm(config, cluster, results)
    if config.option.bundle and not config.option.collectonly:
        from clusterproof.plugins.suite.forms.bundle import BundleForm

        run = config.pluginmanager.get_plugin("clusterproof-session")
        redaction = getattr(run, "redaction", None)
        yield "bundle", BundleForm(config, cluster, results, Path(config.option.bundle), redaction)


def history_form(config: pytest.Config, cluster: Cluster, results: Sequence[Result]) -> HistoryForm | None:
    """The form that says of every result what it is since the last run, and adds the run to the history."""
    option = config.option
    if option.collectonly or (option.no_report and not (option.history or option.since_last)):
        return None  # before anything is imported: a prolog is of this kind
    path = history_of(option, cluster, config.invocation_params.dir)
    if path is None:
        return None
    from clusterproof.plugins.suite.forms.history import HistoryForm

    return HistoryForm(config, cluster, results, path)


def history_of(option: Options, cluster: Cluster, where: Path) -> Path | None:
    """The file that `--history` names, else the one beside the cluster's runs; None where the run keeps none.

    Raises pytest.UsageError where a comparison was asked for, and there is none to compare with.
    """
    from clusterproof.reports.history.store import default_path
    from clusterproof.reports.run_folder import RUNS

    if option.history:
        return Path(option.history)
    why_not = _why_not(option, cluster)
    if why_not and option.since_last:
        raise pytest.UsageError(f"--since-last needs --history=FILE: {why_not}")
    return None if why_not else default_path(cluster.name, where / RUNS)


def _why_not(option: Options, cluster: Cluster) -> str:
    if option.no_report:
        return "with --no-report nothing is kept beside the reports"
    if option.report:
        return "with --report this run is not kept beside others"
    if option.redact:
        return "redacted names differ from run to run, and are kept in none"
    if cluster.connection in OF_ANOTHER_TIME:
        return f"what a {cluster.connection} holds is of another time, and is kept in none unless that is asked for"
    return ""
