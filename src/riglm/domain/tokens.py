"""Estimates of what tool definitions cost a client."""

from typing import Final

BYTES_PER_TOKEN: Final = 4
"""Bytes per token of JSON Schema in English with common tokenizers; good to about a fifth."""

CACHED_PRICE: Final = 0.1
WRITTEN_PRICE: Final = 1.25
"""What a token of a prompt costs when the provider has it cached, and when it writes it to its cache, in units of
an uncached token; the ratio is much the same with all large providers."""


def estimated_tokens(size: int) -> int:
    """Return the tokens of definitions of this number of bytes, rounded up."""
    return -(-size // BYTES_PER_TOKEN)
