"""Counts in text."""


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun: "1 session", "1,200 sessions"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
