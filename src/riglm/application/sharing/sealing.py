"""Values as they are kept outside of riglm: whoever does not know the secret can neither read a name nor forge a value.

A value is sealed for its name: taken from under one key and put under another it is as good as none.
"""

import hmac
import logging
import zlib
from typing import Final

LONGEST: Final = 4 << 20
"""A value of more bytes is none of riglm's."""

_MARK: Final = b"r1"
_SEAL_BYTES: Final = 16
_NAME_DIGITS: Final = 32
_log: Final = logging.getLogger("riglm.state")


class Sealer:
    """Names and seals, both under one secret."""

    def __init__(self, secret: bytes) -> None:
        """`secret` is what all processes have in common."""
        self._naming = hmac.digest(secret, b"names", "sha256")
        self._sealing = hmac.digest(secret, b"values", "sha256")
        self.rejected = 0
        """How many values were ignored."""

    def name(self, kind: str, *parts: str | bytes) -> str:
        """The key of something of this kind, from which nobody can tell what it is."""
        encoded = [part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass") for part in parts]
        framed = b"".join(len(part).to_bytes(8) + part for part in (kind.encode(), *encoded))
        return f"{kind}:{hmac.digest(self._naming, framed, 'sha256').hex()[:_NAME_DIGITS]}"

    def seal(self, name: str, plain: bytes) -> bytes:
        """A value to be kept under this name."""
        packed = zlib.compress(plain, 1)
        return _MARK + self._seal(name, packed) + packed

    def opened(self, name: str, value: bytes | None) -> bytes | None:
        """What a value says; None when there is none, or it was not sealed with our secret for this name."""
        if value is None:
            return None
        seal, packed = value[len(_MARK) : len(_MARK) + _SEAL_BYTES], value[len(_MARK) + _SEAL_BYTES :]
        if not value.startswith(_MARK) or not hmac.compare_digest(seal, self._seal(name, packed)):
            self.reject("it was not sealed with the same key: give all processes the same privacy.key")
            return None
        reader = zlib.decompressobj()
        try:
            plain = reader.decompress(packed, LONGEST)
        except zlib.error:
            plain = b""
        if not reader.eof:
            self.reject("it is too long or cut off")
            return None
        return plain

    def reject(self, reason: str) -> None:
        """Count a value that is ignored, and say so the first time."""
        self.rejected += 1
        if self.rejected == 1:
            _log.warning("ignored a value of shared state; this is said once", extra={"reason": reason})

    def _seal(self, name: str, packed: bytes) -> bytes:
        return hmac.digest(self._sealing, name.encode() + b"\0" + packed, "sha256")[:_SEAL_BYTES]
