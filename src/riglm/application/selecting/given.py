"""What callers give, looked at before anything is done with it: a mistake is told where it was made."""

import math

from riglm.domain.errors import UnusableInput


def text(value: object, place: str) -> str:
    """The text that was given at `place`, such as `select(context=...)`.

    Raises:
        UnusableInput: it is none.
    """
    if not isinstance(value, str):
        raise UnusableInput(f"{place}: {shortly(value)} is no text — fix: give a str")
    return value


def amount(value: object, place: str) -> float:
    """The number that was given at `place`, 0 where it is negative.

    Raises:
        UnusableInput: it is none, or not finite.
    """
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise UnusableInput(f"{place}: {shortly(value)} is no number that can be counted — fix: give a finite one")
    return max(0.0, float(value))


def count(value: object, place: str) -> int:
    """The whole number above 0 that was given at `place`.

    Raises:
        UnusableInput: it is none.
    """
    if not isinstance(value, int) or value < 1:
        raise UnusableInput(f"{place}: {shortly(value)} is no whole number above 0 — fix: give one")
    return value


def shortly(value: object) -> str:
    """A value as a message shows it."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
