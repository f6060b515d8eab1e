"""How far the predictor's own probabilities can be believed."""

from typing import Final

_BINS: Final = 10
_PRIOR_CALLS: Final = 10.0
_MOST_CALLS: Final = 500.0


class Reliability:
    """Corrects a probability by how often such probabilities came true recently."""

    def __init__(self) -> None:
        self._hits = [0.0] * _BINS
        self._calls = [0.0] * _BINS

    def of(self, probability: float) -> float:
        """The corrected probability; the given one while nothing is known."""
        probability = min(max(probability, 0.0), 1.0)
        place = _bin(probability)
        return (self._hits[place] + _PRIOR_CALLS * probability) / (self._calls[place] + _PRIOR_CALLS)

    def learn(self, probability: float, came_true: bool, weight: float) -> None:
        """What was expected with this probability happened, or not."""
        place = _bin(min(max(probability, 0.0), 1.0))
        self._hits[place] += weight * came_true
        self._calls[place] += weight
        if self._calls[place] > _MOST_CALLS:
            self._hits[place] /= 2
            self._calls[place] /= 2


def _bin(probability: float) -> int:
    return min(int(probability * _BINS), _BINS - 1)
