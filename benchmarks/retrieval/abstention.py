"""Does a search say so when nothing fits?"""

from collections.abc import Sequence

from benchmarks.evaluation.retrieval import AbstentionMetrics, EmbeddedDataset, evaluate_abstention
from benchmarks.retrieval.sets import print_table

_MOST = 200


def print_abstention(sets: Sequence[EmbeddedDataset]) -> None:
    """Requests of each set, and as many of all others, against its catalogue."""
    each = [evaluate_abstention(data, [other for other in sets if other is not data], most=_MOST) for data in sets]
    total = AbstentionMetrics(
        answerable=sum(found.answerable for found in each),
        unanswerable=sum(found.unanswerable for found in each),
        wrongly=sum(found.wrongly for found in each),
        rightly=sum(found.rightly for found in each),
    )
    rows = [
        ("false abstentions", [100 * found.false_abstentions for found in each]),
        ("found out", [100 * found.recall for found in each]),
        ("precision", [100 * found.precision for found in each]),
    ]
    print_table("Abstention, in percent", [data.dataset.name for data in sets], rows)
    print(
        f"\nAll together: precision {100 * total.precision:.1f}, false abstentions "
        f"{100 * total.false_abstentions:.1f}, found out {100 * total.recall:.1f}"
    )
