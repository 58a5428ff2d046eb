"""The messages of a session's data channel, in the form that SSM's agent and AWS's plugin give them."""

from __future__ import annotations

import hashlib
import json
import struct
import time
import uuid
from dataclasses import dataclass, field

# header length, type, schema, created (ms), sequence, flags, id, digest, kind of payload; then the payload's length
HEAD = struct.Struct(">I32sIQqQ16s32sI")
LENGTH = struct.Struct(">I")

OUTPUT, INPUT, ACKNOWLEDGE, CLOSED = "output_stream_data", "input_stream_data", "acknowledge", "channel_closed"
PRINTED, HANDSHAKE_REQUEST, HANDSHAKE_RESPONSE, HANDSHAKE_COMPLETE = 1, 5, 6, 7  # kinds of payloads
OUT_OF_SEQUENCE = 3  # the flags of an acknowledgement: the first and the last of its stream


@dataclass(frozen=True)
class Message:
    """One message; `sequence` counts those of a stream."""

    type: str
    payload: bytes = b""
    kind: int = 0
    sequence: int = 0
    flags: int = 0
    id: uuid.UUID = field(default_factory=uuid.uuid4)

    @property
    def data(self) -> dict[str, object]:
        """The payload of one that carries JSON."""
        return dict(json.loads(self.payload))

    def packed(self) -> bytes:
        """As it is sent."""
        head = HEAD.pack(
            HEAD.size,
            self.type.encode().ljust(32),
            1,
            int(1000 * time.time()),
            self.sequence,
            self.flags,
            _swapped(self.id.bytes),
            hashlib.sha256(self.payload).digest(),
            self.kind,
        )
        return head + LENGTH.pack(len(self.payload)) + self.payload


def read(packed: bytes) -> Message:
    """One message as it came. Raises ValueError for one whose digest does not fit."""
    length, kind, _, _, sequence, flags, number, digest, payload_kind = HEAD.unpack_from(packed)
    payload = packed[length + LENGTH.size :]
    if hashlib.sha256(payload).digest() != digest:
        raise ValueError("a message's digest does not fit its payload")
    words = kind.strip(b" \0").decode()
    return Message(words, payload, payload_kind, sequence, flags, uuid.UUID(bytes=_swapped(number)))


def acknowledging(message: Message) -> Message:
    """The message that says that another has come."""
    data = {
        "AcknowledgedMessageType": message.type,
        "AcknowledgedMessageId": str(message.id),
        "AcknowledgedMessageSequenceNumber": message.sequence,
        "IsSequentialMessage": True,
    }
    return Message(ACKNOWLEDGE, json.dumps(data).encode(), flags=OUT_OF_SEQUENCE)


def _swapped(number: bytes) -> bytes:
    """The halves of an id the other way round, as both sides send it."""
    return number[8:] + number[:8]
