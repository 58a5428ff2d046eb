"""How a node's kubelet gives processors and memory to containers, typed."""

from __future__ import annotations

from collections.abc import Iterator

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import Field, Reported, read, table, text, texts

# What the kubelet does where nobody configures it: kubelet.config.k8s.io/v1beta1, as of Kubernetes 1.34.
DEFAULTS = {
    "cpuManagerPolicy": "none",
    "memoryManagerPolicy": "None",
    "topologyManagerPolicy": "none",
    "topologyManagerScope": "container",
}


@record
class Kubelet(Reported):
    """The policies of a kubelet: what is configured, and of some what is in force by the state that it keeps."""

    configured = Field(table)
    changed = Field(texts)  # files that are newer than the process, which has not read them so
    in_force = Field(table)

    def policy(self, key: str) -> str:
        """The policy that is in force. Raises Incomplete."""
        return self.kept(key) or self._read_at_start(key)

    def kept(self, key: str) -> str:
        """The policy in the kubelet's own state; empty where it keeps none, or it may not be read."""
        data = self.in_force.get(key)
        return data if isinstance(data, str) else ""

    def setting(self, key: str) -> str:
        """What the files and flags say now. Raises Incomplete."""
        data = self.configured.get(key)
        return DEFAULTS[key] if data is None else read(data, text, key)

    @property
    def overtaken(self) -> Iterator[tuple[str, str, str]]:
        """The policies that are configured otherwise than they are in force: key, in force, configured."""
        for key in DEFAULTS:
            if self.kept(key) not in ("", self.setting(key)):
                yield key, self.kept(key), self.setting(key)

    def _read_at_start(self, key: str) -> str:
        if self.changed:
            cause = "the kubelet's configuration changed after it started"
            raise Incomplete(
                f"{', '.join(self.changed)} changed after the kubelet started; expected older", cause=cause
            )
        return self.setting(key)
