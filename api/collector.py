"""What a collector of one's own may import: it travels to the node with it. Standard library, Python 3.8."""

from __future__ import annotations

from clusterproof.plugins.probe.reading import Absent as Absent
from clusterproof.plugins.probe.reading import Broke as Broke
from clusterproof.plugins.probe.reading import Denied as Denied
from clusterproof.plugins.probe.reading import Node as Node
from clusterproof.plugins.probe.reading import TimedOut as TimedOut
