"""What is installed on a node."""

from __future__ import annotations

from clusterproof.plugins.evidence.fact import collected_as
from clusterproof.plugins.evidence.software.facts import Image, Software

software = collected_as("versions", Software)
image = collected_as("image", Image)
