"""The site that `make docs` builds of these pages and of those that scripts/generators/site.py writes."""

project = "clusterproof"
extensions = ["myst_parser", "sphinx_copybutton"]
html_theme = "furo"
html_title = "clusterproof"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
exclude_patterns = ["_*"]
myst_heading_anchors = 3
nitpicky = True
suppress_warnings = ["misc.highlighting_failure"]
smartquotes = False
