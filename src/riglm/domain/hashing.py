"""Keyed hashes: equal values have equal hashes, and without the key the values cannot be recovered."""

import hmac
import json
from hashlib import sha256
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]
from typing import Final

import msgspec

KEY_BYTES: Final = 32
MAX_CANONICAL_LENGTH: Final = 1 << 20
"""Arguments longer than this many bytes are hashed as they came."""

_HEX_DIGITS: Final = 32
_BLOCK_BYTES: Final = 64
# As JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False), which would make one for each call.
_chunks: Final = c_make_encoder(None, None, encode_basestring_ascii, None, ":", ",", True, False, False)
_decoded: Final = msgspec.json.Decoder().decode


def canonical_json(raw: bytes) -> bytes | None:
    """One spelling for all equal JSON documents: sorted keys, no spaces. None when `raw` is not strict JSON."""
    try:
        try:
            value = _decoded(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError):  # json takes more, such as lone surrogates
            value = json.loads(raw)
        return "".join(_chunks(value, 0)).encode("ascii")
    except (ValueError, RecursionError):
        return None


class KeyedHasher:
    """HMAC-SHA-256 under one key, cut to 128 bits, in hex. Each kind of value is hashed under a separate label."""

    def __init__(self, key: bytes) -> None:
        if len(key) < KEY_BYTES:
            raise ValueError(f"a hashing key has {KEY_BYTES} bytes, not {len(key)}")
        self._key = key
        block = (key if len(key) <= _BLOCK_BYTES else sha256(key).digest()).ljust(_BLOCK_BYTES, b"\0")
        # HMAC as RFC 2104 has it, with the key hashed once: `hmac.digest` takes three times as long for short values.
        self._inner = sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = sha256(bytes(byte ^ 0x5C for byte in block))

    def arguments(self, raw: bytes) -> str:
        """The hash of a call's arguments: equal for equal JSON, however spelt."""
        canonical = canonical_json(raw) if len(raw) <= MAX_CANONICAL_LENGTH else None
        return self._digest(b"arguments as sent", raw) if canonical is None else self._digest(b"arguments", canonical)

    def client_id(self, name: str, principal: str = "", address: str = "") -> str:
        """Return the hash of a client: its name, its principal, and its address."""
        return self._digest(b"client", *(_utf8(part) for part in (name, principal, address)))

    def client_name(self, name: str) -> str:
        """Return the hash of all clients with this name."""
        return self._digest(b"client name", _utf8(name))

    def principal(self, principal: str) -> str:
        """Return the hash of a principal."""
        return self._digest(b"principal", _utf8(principal))

    def project(self, project: str) -> str:
        """Return the hash of a project, by the path or the URI that names it."""
        return self._digest(b"project", _utf8(project))

    def session_key(self, value: str) -> str:
        """The hash of a conversation key or handle by which a session was recognised."""
        return self._digest(b"session key", _utf8(value))

    def catalog(self, raw: bytes) -> str:
        """The hash of what a tool catalog depends on, as JSON: the server's configuration, or what a client can do."""
        canonical = canonical_json(raw)
        return self._digest(b"catalog", raw if canonical is None else canonical)

    def derived_key(self, purpose: str) -> bytes:
        """Return a separate key for one purpose, from which this one cannot be derived."""
        return hmac.digest(self._key, b"key for " + _utf8(purpose), "sha256")

    def installation_id(self) -> str:
        """Return what names this installation in a store that several have together."""
        return self.derived_key("clickhouse").hex()[:16]

    def _digest(self, label: bytes, *parts: bytes) -> str:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(b"".join([len(part).to_bytes(8) + part for part in (label, *parts)]))
        outer.update(inner.digest())
        return outer.hexdigest()[:_HEX_DIGITS]


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
