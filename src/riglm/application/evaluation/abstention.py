"""Whether a search says so when nothing fits."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from riglm.application.evaluation.prepared import Prepared
from riglm.domain.prediction import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstentionFigures:
    """Searches in one catalogue. Answerable are the requests of its own set, unanswerable those of other sets.

    The latter holds only nearly: a large catalogue also has tools for strangers' requests.
    """

    answerable: int
    unanswerable: int
    wrongly: int
    rightly: int

    @property
    def false_abstentions(self) -> float:
        """The share of answerable requests for which nothing was found."""
        return self.wrongly / self.answerable if self.answerable else 0.0

    @property
    def recall(self) -> float:
        """The share of unanswerable requests that were seen to be."""
        return self.rightly / self.unanswerable if self.unanswerable else 0.0

    @property
    def precision(self) -> float:
        """How often it was right that nothing fits, if both kinds of requests were equally many; 1 if never said."""
        said = self.recall + self.false_abstentions
        return self.recall / said if said else 1.0


def evaluate_abstention(catalogue: Prepared, others: Sequence[Prepared], *, most: int = 200) -> AbstentionFigures:
    """Search a catalogue for at most so many requests of its own, and as many of the others' together."""
    retriever = catalogue.retriever()

    def abstentions(contexts: Sequence[Context]) -> int:
        return sum(retriever.search(context, 1).abstained for context in contexts)

    own = catalogue.contexts[:most]
    share = -(-most // max(1, len(others)))
    strange = [context for other in others for context in islice(other.contexts, share)]
    return AbstentionFigures(
        answerable=len(own),
        unanswerable=len(strange),
        wrongly=abstentions(own),
        rightly=abstentions(strange),
    )
