"""What is installed on a node."""

from __future__ import annotations

from clusterproof.plugins.evidence.fact import told_as
from clusterproof.plugins.evidence.software.facts import Image, Software

software = told_as("versions", Software)
image = told_as("image", Image)
