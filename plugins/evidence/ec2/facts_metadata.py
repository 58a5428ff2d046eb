"""What EC2's instance metadata service tells an instance of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, every, one, text, whole

HTTP_OK = 200
_OVER = ("completed", "canceled")


@record
class Identity:
    """Which instance it is; empty where the document lacks a word."""

    data: Mapping[str, Any]

    instance_id = Field(text)
    instance_type = Field(text)
    availability_zone = Field(text)
    region = Field(text)
    image_id = Field(text)


@record
class ScheduledEvent:
    """Something that AWS will do to the instance, or has done."""

    data: Mapping[str, Any]

    code = Field(text)
    state = Field(text)
    not_before = Field(text)

    @property
    def is_ahead(self) -> bool:
        """Whether it is still to come. Raises Incomplete."""
        return self.state not in _OVER


@record
class Metadata:
    """The service's answers; `token` and `without_token` are HTTP's status of a request for, and without, a token."""

    data: Mapping[str, Any]

    token = Field(whole)
    without_token = Field(whole)
    events = Field(every(ScheduledEvent), where="imds: events")  # what AWS has scheduled for it
    identity = Field(one(Identity), where="imds: identity")
