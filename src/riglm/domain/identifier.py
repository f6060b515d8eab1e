"""Identifiers that sort by time of birth."""

import os
import threading
import time
import uuid

_lock = threading.Lock()
_last_ms = 0
_sequence = 0


def uuid7() -> uuid.UUID:
    """A new UUIDv7 (RFC 9562, section 5.7), strictly increasing within this process.

    The 12 bits after the millisecond are a counter that starts at a random place in its lower half (RFC 9562,
    section 6.2, method 1); when it runs over, or the clock steps back, the millisecond is carried on from the last one.
    """
    global _last_ms, _sequence  # noqa: PLW0603  # one counter a process is the point
    chance = int.from_bytes(os.urandom(10))
    with _lock:
        now_ms = time.time_ns() // 1_000_000
        if now_ms > _last_ms:
            _last_ms = now_ms
            _sequence = (chance >> 64) & 0x7FF
        else:
            _sequence += 1
            if _sequence > 0xFFF:
                _last_ms += 1
                _sequence = 0
        ms, sequence = _last_ms, _sequence
    return uuid.UUID(int=(ms << 80) | (0x7000 | sequence) << 64 | (0b10 << 62) | (chance & 0x3FFF_FFFF_FFFF_FFFF))


def parsed_uuid(text: str) -> uuid.UUID | None:
    """The UUID that a text spells, None when it spells none."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
