"""The variables that set up `inner_voice.retrieve` in every implementation, in addition to those of riglm.

They never stop a start: what is out of bounds is put on the bound, what cannot be read is left out, and a warning says
so. They go before all other settings.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from riglm.adapters.configuration.loading import Draft
from riglm.domain.schemas.filtering import DEFAULT_CANDIDATES, DEFAULT_MIN_FLOOR, MAX_CANDIDATES, KnowledgeSettings

GATE: Final = "SURR_ENABLE_INNER_VOICE"
"""`1` switches the tool on, anything else off, also nothing at all."""

MIX: Final = "SURR_INNER_VOICE_MIX"
TOP_K: Final = "SURR_INNER_VOICE_TOPK_DEFAULT"
MIN_FLOOR: Final = "SURR_INNER_VOICE_MIN_FLOOR"
CANDIDATES: Final = "SURR_INNER_VOICE_MAX_CANDIDATES_PER_SOURCE"
PROVIDER: Final = "SURR_EMBED_PROVIDER"
MODEL: Final = "SURR_EMBED_MODEL"
DIMENSIONS: Final = "SURR_EMBED_DIM"

_PROVIDERS: Final = ("fastembed", "static")
_MAX_SNIPPETS: Final = 50
_PER_SNIPPET: Final = 3
_TRUE: Final = frozenset({"true", "1", "yes", "on", "t", "y"})
_MAX_SHOWN_LENGTH: Final = 40


def take(draft: Draft, environment: Mapping[str, str], *, always: bool = False) -> list[str]:
    """Set what the variables say, all but the gate only where the tool is switched on, or `always`; the warnings."""
    given = {name: text.strip() for name, text in environment.items() if name.startswith("SURR_")}
    warnings: list[str] = []

    def put(name: str, section: str, key: str, value: Any, warning: str = "") -> None:
        draft.set((section, key), value, name)
        if warning:
            warnings.append(f"{name}: {warning}")

    gate = given.get(GATE)
    if gate is not None:
        warning = "" if gate in {"0", "1"} else f"{_shown(gate)} disables inner_voice.retrieve; only 1 enables it"
        put(GATE, "knowledge", "enabled", gate == "1", warning)
    if not (always or str(_held(draft, "enabled")).lower() in _TRUE):
        return warnings
    for name, key, read, what, lowest, highest in _BOUNDED:
        if text := given.get(name):
            number = read(text)
            if number is None:
                put(name, "knowledge", key, None, f"{_shown(text)} is no {what}, and is left out")
                continue
            bounded = min(max(number, lowest), highest)
            warning = f"{_shown(text)} is not from {lowest:g} to {highest:g}: {bounded:g} it is"
            put(name, "knowledge", key, bounded, "" if bounded == number else warning)
    if text := given.get(MIN_FLOOR):
        floor = _number(text)
        is_good = floor is not None and 0 < floor < 1
        warning = "" if is_good else f"{_shown(text)} is not between 0 and 1: {DEFAULT_MIN_FLOOR:g} it is"
        put(MIN_FLOOR, "knowledge", "min_floor", floor if is_good else DEFAULT_MIN_FLOOR, warning)
    if given.get(CANDIDATES) or given.get(TOP_K):
        most, warning = _candidates(given.get(CANDIDATES), draft)
        put(CANDIDATES, "knowledge", "max_candidates_per_source", most, warning)
    provider = given.get(PROVIDER, "").lower()
    if provider and provider not in _PROVIDERS:
        known = " and ".join(_PROVIDERS)
        warning = f"{_shown(provider)} is none of riglm's, which are {known}: the embedder stays as it is configured"
        put(PROVIDER, "embedder", "provider", None, warning)
        return warnings
    put(PROVIDER, "embedder", "provider", provider or None)
    put(MODEL, "embedder", "model", given.get(MODEL) or None)
    if text := given.get(DIMENSIONS):
        dimensions = _whole(text)
        is_good = dimensions is not None and dimensions >= 1
        warning = "" if is_good else f"{_shown(text)} is no whole number from 1, and is left out"
        put(DIMENSIONS, "knowledge", "dimensions", dimensions if is_good else None, warning)
    return warnings


def _candidates(text: str | None, draft: Draft) -> tuple[int | None, str]:
    """Return the bound if given, None for the previous one, and a warning; the snippets of one answer always fit."""
    top_k = _whole(str(_held(draft, "top_k"))) or KnowledgeSettings().top_k
    given = text or str(_held(draft, "max_candidates_per_source"))
    number = _whole(given)
    if number is None or number < top_k:
        enough = max(_PER_SNIPPET * top_k, DEFAULT_CANDIDATES)
        return enough, f"{_shown(given)} is no number from {top_k}, which top_k is: {enough} it is"
    if number > MAX_CANDIDATES:
        return MAX_CANDIDATES, f"{_shown(given)} is more than {MAX_CANDIDATES}, which it is"
    return number if text else None, ""


def _held(draft: Draft, key: str) -> Any:
    section = draft.values.get("knowledge")
    held = section.get(key) if isinstance(section, dict) else None
    return KnowledgeSettings.model_fields[key].default if held is None else held


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _whole(text: str) -> int | None:
    try:
        return int(text[:_MAX_SHOWN_LENGTH])
    except ValueError:
        return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN_LENGTH else f"{text[:_MAX_SHOWN_LENGTH]}…")


_BOUNDED: Final[Sequence[tuple[str, str, Callable[[str], float | None], str, float, float]]] = (
    (MIX, "mix", _number, "number", 0.0, 1.0),
    (TOP_K, "top_k", _whole, "whole number", 1, _MAX_SNIPPETS),
)
"""Variables of numbers with the keys that they set, and the bounds."""
