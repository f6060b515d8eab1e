"""Prices of model tokens."""

from typing import Final, Literal

from pydantic import Field

from riglm.domain.prices import Prices
from riglm.domain.schemas.base import Section

_PRESETS: Final = {
    "anthropic": Prices(cached_input=0.1, cache_write=1.25, output=5.0),
    "openai": Prices(cached_input=0.1, cache_write=1.0, output=8.0),
    "google": Prices(cached_input=0.1, cache_write=1.0, output=8.0),
    "uncached": Prices(cached_input=1.0, cache_write=1.0, output=5.0),
}


class PriceSettings(Section):
    """What tokens cost relative to uncached input. Lists hold the tools whose listing pays at these prices."""

    preset: Literal["anthropic", "openai", "google", "uncached"] = Field(
        default="anthropic", description="The usual ratios of a provider, for the keys that are not given."
    )
    cached_input: float | None = Field(default=None, ge=0, description="Price of a token that is read from the cache.")
    cache_write: float | None = Field(default=None, ge=0, description="Price of a token that is written to the cache.")
    output: float | None = Field(default=None, ge=0, description="Price of an output token.")
    extra_request: float | None = Field(
        default=None,
        ge=0,
        description="What one avoided model request is worth in addition to its tokens, in tokens of uncached input.",
    )

    def prices(self) -> Prices:
        """Return the prices of the preset, replaced by those that are given."""
        preset = _PRESETS[self.preset]

        def chosen(given: float | None, usual: float) -> float:
            return usual if given is None else given

        return Prices(
            cached_input=chosen(self.cached_input, preset.cached_input),
            cache_write=chosen(self.cache_write, preset.cache_write),
            output=chosen(self.output, preset.output),
            extra_request=chosen(self.extra_request, preset.extra_request),
        )
