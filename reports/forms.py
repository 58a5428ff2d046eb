"""The report forms of other plugins that the command line asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from clusterproof.plugins.inventory.model import Cluster
from clusterproof.plugins.result import Result


def forms(config: pytest.Config, cluster: Cluster, results: Sequence[Result]) -> Iterator[tuple[str, object]]:
    """The plugin object of each, by name; `results` grows while the checks run."""
    is_redacted = bool(config.option.redact)
    if config.getoption("xmlpath", None):
        from clusterproof.reports.junit import junit_form

        form = junit_form(config, is_redacted)
        if form:
            yield "junit", form
    if config.getoption("htmlpath", None):
        from clusterproof.reports.html import HtmlForm

        yield "html", HtmlForm(config, cluster, results, is_redacted)
