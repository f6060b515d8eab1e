"""The table of the study with a model is that of its published trials."""

from benchmarks.model_study.results import read_results, summarize

from tests.documents.page import ROOT
from tests.documents.test_price import numbers, rows

PAGE = ROOT / "docs" / "discussions" / "benchmarks.md"
PUBLISHED = ROOT / "benchmarks" / "model_study" / "published" / "trials.jsonl"
FIGURES = ("first_right", "right", "hidden", "searched_when_hidden", "looked_up_when_hidden", "tokens", "requests")
BOUND_TOLERANCE = 1.5
"""How far the random numbers of another version of numpy may move a bound of an interval."""


def test_the_table_of_the_study_is_that_of_the_published_trials() -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    _, *shown = rows(lines, "arm")
    study, trials = read_results(PUBLISHED)
    found = {row["arm"]: row for row in summarize(trials, [arm for arm, *_ in shown], seed=study["seed"])}
    assert len(shown) == 4
    for arm, *cells in shown:
        for name, cell in zip(FIGURES, cells, strict=True):
            figure = found[arm][name]
            mean, *bounds = numbers(cell.replace(",", "")) or [None]
            assert (figure is None) == (mean is None), (arm, name)
            if mean is not None:
                assert abs(mean - figure["mean"]) <= 0.5, (arm, name)
                for bound, end in zip(bounds, ("low", "high"), strict=True):
                    assert abs(bound - figure[end]) <= max(BOUND_TOLERANCE, 0.02 * figure[end]), (arm, name)
    tasks = {row["tasks"] for row in found.values()}
    assert all(f"{number} tasks" in " ".join(lines) for number in tasks)
    searched = found["riglm"]["searched_when_hidden"]["mean"]
    assert f"[searched for {searched:.0f} % of them]" in (ROOT / "README.md").read_text("utf-8")
