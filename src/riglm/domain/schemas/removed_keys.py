"""Keys of earlier versions that the configuration no longer has."""

from typing import Final

REMOVED_KEYS: Final[dict[str, str]] = {
    "control.allow_upstream_changes": "remove it, change servers in riglm.yaml, and restart riglm",
    "embedder.batch": "remove it: requests of several threads take turns of eight texts",
}
"""What to do about each key that was removed, by its path: `{"embedder.batch": "remove it: …"}`.

A file or variable that sets such a key, or one below it, is refused with this text as the fix.
"""


def find_replacement(path: str) -> str | None:
    """Return what to do about the key at a path, None if it was not removed. Capitals do not matter."""
    keys = path.lower().split(".")
    above = {".".join(keys[:length]) for length in range(1, len(keys) + 1)}
    return next((fix for key, fix in REMOVED_KEYS.items() if key.lower() in above), None)
