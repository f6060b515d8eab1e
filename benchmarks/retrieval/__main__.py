"""What each part of retrieval adds: `python -m benchmarks.retrieval --data DIR [ablation|distractors|...]`."""

import argparse
from pathlib import Path

from threadpoolctl import threadpool_limits

from benchmarks.retrieval import ablation, abstention, distractors, probability
from benchmarks.retrieval.sets import SMALL_NAMES, mix_distractors, prepared_sets

_PARTS = ("ablation", "distractors", "usage", "abstention", "probability")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the directory of the data sets")
    parser.add_argument("--cache", type=Path, default=Path(".cache/evaluation.sqlite"), help="where vectors are kept")
    parser.add_argument("--limit", type=int, default=300, help="most requests of a set")
    parser.add_argument("--sets", nargs="*", default=[], help="only these sets")
    parser.add_argument("part", nargs="*", choices=[*_PARTS, []], default=_PARTS)
    given = parser.parse_args()
    threadpool_limits(1, user_api="blas")
    sets = prepared_sets(given.data, given.cache, given.limit, given.sets)
    if "ablation" in given.part:
        ablation.print_retrieval(sets)
    if {"distractors", "probability"} & set(given.part):
        mixed = mix_distractors(given.data, given.cache, sets)
    if "distractors" in given.part:
        small = [] if given.sets else prepared_sets(given.data, given.cache, given.limit, SMALL_NAMES)
        distractors.print_distractors([*mixed, *mix_distractors(given.data, given.cache, small)])
    if "usage" in given.part:
        ablation.print_usage(sets)
    if "abstention" in given.part:
        abstention.print_abstention(sets)
    if "probability" in given.part:
        probability.print_probability([*sets, *mixed])


if __name__ == "__main__":
    main()
