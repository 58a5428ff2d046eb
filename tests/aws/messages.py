"""The messages of a session's data channel, in the format of SSM's agent and AWS's plugin."""

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
PRINTED, HANDSHAKE_REQUEST, HANDSHAKE_RESPONSE, HANDSHAKE_COMPLETE = 1, 5, 6, 7  # kinds of payload
OUT_OF_SEQUENCE = 3  # an acknowledgement's flags: first and last of its stream


@dataclass(frozen=True)
class Message:
    """One message; `sequence` numbers those of a stream."""

    type: str
    payload: bytes = b""
    kind: int = 0
    sequence: int = 0
    flags: int = 0
    id: uuid.UUID = field(default_factory=uuid.uuid4)

    @property
    def data(self) -> dict[str, object]:
        """A JSON payload."""
        return dict(json.loads(self.payload))

    def packed(self) -> bytes:
        """The message as sent."""
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
    """Parse a message. Raises ValueError if its digest does not match."""
    length, kind, _, _, sequence, flags, number, digest, payload_kind = HEAD.unpack_from(packed)
    payload = packed[length + LENGTH.size :]
    if hashlib.sha256(payload).digest() != digest:
        raise ValueError("a message's digest does not fit its payload")
    message_type = kind.strip(b" \0").decode()
    return Message(message_type, payload, payload_kind, sequence, flags, uuid.UUID(bytes=_swapped(number)))


def acknowledging(message: Message) -> Message:
    """The message that acknowledges another."""
    acknowledgement = {
        "AcknowledgedMessageType": message.type,
        "AcknowledgedMessageId": str(message.id),
        "AcknowledgedMessageSequenceNumber": message.sequence,
        "IsSequentialMessage": True,
    }
    return Message(ACKNOWLEDGE, json.dumps(acknowledgement).encode(), flags=OUT_OF_SEQUENCE)


def _swapped(number: bytes) -> bytes:
    """An id with its halves swapped, as both sides send it."""
    return number[8:] + number[:8]
