"""What a site's own collector may import; it travels to the node with the collector. Standard library, Python 3.8."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Absent as Absent
from clusterproof.plugins.agent.reading import Broke as Broke
from clusterproof.plugins.agent.reading import Denied as Denied
from clusterproof.plugins.agent.reading import Node as Node
from clusterproof.plugins.agent.reading import TimedOut as TimedOut
