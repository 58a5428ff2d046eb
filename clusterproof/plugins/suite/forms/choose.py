"""The report forms of other plugins that the command line asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.result import Result

if TYPE_CHECKING:
    from clusterproof.plugins.suite.forms.history import HistoryForm


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
    from clusterproof.plugins.suite.forms.history_place import history_of

    path = history_of(option, cluster, config.invocation_params.dir)
    if path is None:
        return None
    from clusterproof.plugins.suite.forms.history import HistoryForm

    return HistoryForm(config, cluster, results, path)
