"""What is installed on a node."""

from __future__ import annotations

from clusterproof.plugins.facts.fact import told_as
from clusterproof.plugins.facts.software import Image, Software

software = told_as("versions", Software)
image = told_as("image", Image)
