"""The variables that set up `inner_voice.retrieve` in every implementation, in addition to those of riglm.

They never stop a start: what is out of bounds is put on the bound, what cannot be read is left out, and a warning says
so. They go before all other settings.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from riglm.adapters.configuration.loading import Draft
from riglm.domain.schemas.filtering import DEFAULT_CANDIDATES, DEFAULT_MIN_FLOOR, MAX_CANDIDATES, KnowledgeSettings
from riglm.domain.schemas.shape import IndexedKeyPath

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
_MAX_SHOWN_LENGTH: Final = 40


class VariableResult(NamedTuple):
    """Return what a variable sets, if anything, and what to report."""

    name: str
    path: IndexedKeyPath
    value: Any = None
    warning: str = ""


def take(draft: Draft, environment: Mapping[str, str], *, always: bool = False) -> list[str]:
    """Set what the variables say, all but the gate only where the tool is switched on, or `always`; the warnings."""
    warnings = []
    for found in _found(draft, environment, always=always):
        draft.set(found.path, found.value, found.name)
        if found.warning:
            warnings.append(f"{found.name}: {found.warning}")
    return warnings


def _found(draft: Draft, environment: Mapping[str, str], *, always: bool) -> Iterator[VariableResult]:
    gate = environment.get(GATE)
    given = {name: text.strip() for name, text in environment.items() if name.startswith("SURR_") and text.strip()}
    if gate is not None:
        yield _gate(gate.strip())
    if not given or not (always or _is_on(_held(draft, "enabled"))):
        return
    if MIX in given:
        yield _mix(given[MIX])
    if TOP_K in given:
        yield _top_k(given[TOP_K])
    if MIN_FLOOR in given:
        yield _min_floor(given[MIN_FLOOR])
    if CANDIDATES in given or TOP_K in given:
        yield from _candidates(given.get(CANDIDATES), draft)
    yield from _embedder(given)


def _gate(text: str) -> VariableResult:
    warning = "" if text in {"0", "1"} else f"{_shown(text)} disables inner_voice.retrieve; only 1 enables it"
    return VariableResult(GATE, ("knowledge", "enabled"), text == "1", warning)


def _mix(text: str) -> VariableResult:
    path = ("knowledge", "mix")
    number = _number(text)
    if number is None:
        return VariableResult(MIX, path, warning=f"{_shown(text)} is no number, and is left out")
    bounded = min(max(number, 0.0), 1.0)
    return VariableResult(
        MIX, path, bounded, "" if bounded == number else f"{_shown(text)} is not from 0 to 1: {bounded:g} it is"
    )


def _top_k(text: str) -> VariableResult:
    path = ("knowledge", "top_k")
    number = _whole(text)
    if number is None:
        return VariableResult(TOP_K, path, warning=f"{_shown(text)} is no whole number, and is left out")
    bounded = min(max(number, 1), _MAX_SNIPPETS)
    warning = "" if bounded == number else f"{_shown(text)} is not from 1 to {_MAX_SNIPPETS}: {bounded} it is"
    return VariableResult(TOP_K, path, bounded, warning)


def _min_floor(text: str) -> VariableResult:
    number = _number(text)
    if number is not None and 0 < number < 1:
        return VariableResult(MIN_FLOOR, ("knowledge", "min_floor"), number)
    warning = f"{_shown(text)} is not between 0 and 1: {DEFAULT_MIN_FLOOR:g} it is"
    return VariableResult(MIN_FLOOR, ("knowledge", "min_floor"), DEFAULT_MIN_FLOOR, warning)


def _candidates(text: str | None, draft: Draft) -> Iterator[VariableResult]:
    """Return the bound if given, otherwise the previous one; the snippets of one answer always fit."""
    path = ("knowledge", "max_candidates_per_source")
    top_k = _whole(str(_held(draft, "top_k"))) or KnowledgeSettings().top_k
    number = _whole(str(_held(draft, "max_candidates_per_source"))) if text is None else _whole(text)
    if number is None or number < top_k:
        enough = max(_PER_SNIPPET * top_k, DEFAULT_CANDIDATES)
        shown = _shown(str(number) if text is None else text)
        yield VariableResult(
            CANDIDATES, path, enough, f"{shown} is no number from {top_k}, which top_k is: {enough} it is"
        )
    elif number > MAX_CANDIDATES:
        yield VariableResult(CANDIDATES, path, MAX_CANDIDATES, f"{number} is more than {MAX_CANDIDATES}, which it is")
    elif text is not None:
        yield VariableResult(CANDIDATES, path, number)


def _embedder(given: Mapping[str, str]) -> Iterator[VariableResult]:
    provider = given.get(PROVIDER)
    if provider is not None and provider.lower() not in _PROVIDERS:
        known = " and ".join(_PROVIDERS)
        warning = f"{_shown(provider)} is none of riglm's, which are {known}: the embedder stays as it is configured"
        yield VariableResult(PROVIDER, ("embedder", "provider"), warning=warning)
        return
    if provider is not None:
        yield VariableResult(PROVIDER, ("embedder", "provider"), provider.lower())
    if MODEL in given:
        yield VariableResult(MODEL, ("embedder", "model"), given[MODEL])
    if DIMENSIONS in given:
        number = _whole(given[DIMENSIONS])
        path = ("knowledge", "dimensions")
        if number is None or number < 1:
            shown = _shown(given[DIMENSIONS])
            yield VariableResult(DIMENSIONS, path, warning=f"{shown} is no whole number from 1, and is left out")
        else:
            yield VariableResult(DIMENSIONS, path, number)


def _held(draft: Draft, key: str) -> Any:
    section = draft.values.get("knowledge")
    held = section.get(key) if isinstance(section, dict) else None
    return KnowledgeSettings.model_fields[key].default if held is None else held


def _is_on(value: Any) -> bool:
    return str(value).lower() in {"true", "1", "yes", "on", "t", "y"}


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
