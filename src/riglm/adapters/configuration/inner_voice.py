"""The variables that set up `inner_voice.retrieve` in every implementation, in addition to those of riglm.

They never stop a start: what is out of bounds is put on the bound, what cannot be read is left out, and a warning says
so. They go before all other settings.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from riglm.adapters.configuration.loading import Draft
from riglm.domain.schemas.filtering import DEFAULT_CANDIDATES, DEFAULT_MIN_FLOOR, MAX_CANDIDATES, KnowledgeSettings
from riglm.domain.schemas.problems import IndexedKeyPath

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
    warnings = []
    for name, path, value, warning in _read_variables(draft, environment, always=always):
        draft.set(path, value, name)
        if warning:
            warnings.append(f"{name}: {warning}")
    return warnings


_Result = tuple[str, IndexedKeyPath, Any, str]
"""A variable, the path and the value that it sets, None for nothing, and a warning."""


def _read_variables(draft: Draft, environment: Mapping[str, str], *, always: bool) -> Iterator[_Result]:
    given = {name: text.strip() for name, text in environment.items() if name.startswith("SURR_")}
    gate = given.get(GATE)
    if gate is not None:
        warning = "" if gate in {"0", "1"} else f"{_shown(gate)} disables inner_voice.retrieve; only 1 enables it"
        yield GATE, ("knowledge", "enabled"), gate == "1", warning
    if not (always or str(_held(draft, "enabled")).lower() in _TRUE):
        return
    if mix := given.get(MIX):
        yield _bound(MIX, "mix", mix, _number(mix), 0.0, 1.0)
    if top_k := given.get(TOP_K):
        yield _bound(TOP_K, "top_k", top_k, _whole(top_k), 1, _MAX_SNIPPETS)
    if floor := given.get(MIN_FLOOR):
        number = _number(floor)
        is_good = number is not None and 0 < number < 1
        warning = "" if is_good else f"{_shown(floor)} is not between 0 and 1: {DEFAULT_MIN_FLOOR:g} it is"
        yield MIN_FLOOR, ("knowledge", "min_floor"), number if is_good else DEFAULT_MIN_FLOOR, warning
    if given.get(CANDIDATES) or given.get(TOP_K):
        yield from _read_candidates(given.get(CANDIDATES), draft)
    yield from _read_embedder(given)


def _bound(name: str, key: str, text: str, number: float | None, lowest: float, highest: float) -> _Result:
    path = ("knowledge", key)
    if number is None:
        return (
            name,
            path,
            None,
            f"{_shown(text)} is no {'whole number' if isinstance(lowest, int) else 'number'}, and is left out",
        )
    bounded = min(max(number, lowest), highest)
    warning = "" if bounded == number else f"{_shown(text)} is not from {lowest:g} to {highest:g}: {bounded:g} it is"
    return name, path, bounded, warning


def _read_candidates(text: str | None, draft: Draft) -> Iterator[_Result]:
    """Return the bound if given, otherwise the previous one; the snippets of one answer always fit."""
    path = ("knowledge", "max_candidates_per_source")
    top_k = _whole(str(_held(draft, "top_k"))) or KnowledgeSettings().top_k
    given = text or str(_held(draft, "max_candidates_per_source"))
    number = _whole(given)
    if number is None or number < top_k:
        enough = max(_PER_SNIPPET * top_k, DEFAULT_CANDIDATES)
        yield CANDIDATES, path, enough, f"{_shown(given)} is no number from {top_k}, which top_k is: {enough} it is"
    elif number > MAX_CANDIDATES:
        yield CANDIDATES, path, MAX_CANDIDATES, f"{_shown(given)} is more than {MAX_CANDIDATES}, which it is"
    elif text:
        yield CANDIDATES, path, number, ""


def _read_embedder(given: Mapping[str, str]) -> Iterator[_Result]:
    provider = given.get(PROVIDER, "").lower()
    if provider and provider not in _PROVIDERS:
        known = " and ".join(_PROVIDERS)
        warning = f"{_shown(provider)} is none of riglm's, which are {known}: the embedder stays as it is configured"
        yield PROVIDER, ("embedder", "provider"), None, warning
        return
    yield PROVIDER, ("embedder", "provider"), provider or None, ""
    yield MODEL, ("embedder", "model"), given.get(MODEL) or None, ""
    if text := given.get(DIMENSIONS):
        number = _whole(text)
        is_good = number is not None and number >= 1
        warning = "" if is_good else f"{_shown(text)} is no whole number from 1, and is left out"
        yield DIMENSIONS, ("knowledge", "dimensions"), number if is_good else None, warning


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
