"""Issuer identifiers of authorization servers, RFC 8414 and RFC 9207."""

import re


def issuer_spellings(issuer: str) -> tuple[str, ...]:
    """Return the spellings of an issuer that count as equal: with and without a final slash if its path is empty."""
    origin = re.fullmatch(r"(https?://[^/?#]+)/?", issuer)
    return (origin[1], f"{origin[1]}/") if origin else (issuer,)


def is_same_issuer(one: str, other: str) -> bool:
    """True if two identifiers name one issuer. Any difference but that of `issuer_spellings` makes two issuers."""
    return one in issuer_spellings(other)
