"""What EC2's instance metadata service reports about an instance."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, every, one, text, whole

HTTP_OK = 200
_OVER = ("completed", "canceled")


@record
class Identity(Reported):
    """Which instance it is; empty where the document lacks a word."""

    instance_id = Field(text)
    instance_type = Field(text)
    availability_zone = Field(text)
    region = Field(text)
    image_id = Field(text)


@record
class ScheduledEvent(Reported):
    """Something that AWS will do to the instance, or has done."""

    code = Field(text)
    state = Field(text)
    not_before = Field(text)

    @property
    def is_ahead(self) -> bool:
        """Whether it is still to come. Raises Incomplete."""
        return self.state not in _OVER


@record
class Metadata(Reported):
    """The service's answers; `token` and `without_token` are HTTP's status of a request for, and without, a token."""

    token = Field(whole)
    without_token = Field(whole)
    events = Field(every(ScheduledEvent), where="imds: events")  # what AWS has scheduled for it
    identity = Field(one(Identity), where="imds: identity")
