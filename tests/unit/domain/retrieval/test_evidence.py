import numpy as np
import pytest

from riglm.domain.prediction import Context
from riglm.domain.retrieval.pairs import PairReliability
from riglm.domain.retrieval.retriever import WORDS_WITHOUT_MEANING, Retriever
from riglm.domain.retrieval.scoring import level
from riglm.domain.tool import ToolProfile
from tests.unit.domain.retrieval.samples import MODEL

AXES = np.eye(8, dtype=np.float32)


def _tool(name, server=""):
    return ToolProfile(name=name, server=server)


def _asked(direction, model=MODEL):
    return Context(text="something", vector=direction / np.linalg.norm(direction), model=model)


def test_words_count_more_when_the_model_knows_no_meaning():
    tools = [ToolProfile(name="near", description=""), ToolProfile(name="something", description="")]
    vectors = {"near": AXES[0], "something": AXES[1]}
    real = Retriever(tools).with_vectors(MODEL, vectors)
    hashed = Retriever(tools).with_vectors(WORDS_WITHOUT_MEANING + "x", vectors)
    assert real.evidence(_asked(AXES[0])).argmax() == 0
    assert hashed.evidence(_asked(AXES[0], WORDS_WITHOUT_MEANING + "x")).argmax() == 1


def test_what_was_right_one_time_in_four_is_hardly_trusted_and_old_failures_are_forgotten():
    record = PairReliability()
    for number in range(400):
        record.note(number % 4 == 0)
    assert record.trust < 0.07
    for _ in range(1000):
        record.note(True)
    assert record.trust > 0.9


def test_evidence_counts_words_less_when_a_request_shares_few_of_its_words():
    tools = [ToolProfile(name="near"), ToolProfile(name="something"), *(ToolProfile(name=f"t{at}") for at in range(9))]
    index = Retriever(tools).with_vectors(MODEL, {tool.name: AXES[at % 2] for at, tool in enumerate(tools)})

    def lead_of_the_word(text: str) -> float:
        near, something, *_ = index.evidence(Context(text=text, vector=AXES[0], model=MODEL))
        return float(something - near)

    assert lead_of_the_word("something") > lead_of_the_word("something about zeppelins over five great lakes tonight")


def test_evidence_ranks_a_general_tool_lower_in_a_large_catalog():
    chance = np.random.default_rng(0)
    matrix = 3 * AXES[0] + chance.standard_normal((8_000, len(AXES[0]))).astype(np.float32)
    matrix[0], matrix[1] = 4 * AXES[0] + AXES[1], 2 * AXES[0] + AXES[1]  # both are as near to the request
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    names = [f"t{at}" for at in range(len(matrix))]

    def general_and_special(count: int) -> list[float]:
        tools = [_tool(name, f"server{at // 2 % 9}") for at, name in enumerate(names[:count])]
        index = Retriever(tools).with_vectors(MODEL, dict(zip(names, matrix[:count], strict=False)))
        return index.evidence(_asked(matrix[0] + matrix[1]))[:2].tolist()

    small, large = general_and_special(400), general_and_special(8_000)
    assert small[0] >= small[1]
    assert large[0] < large[1]


def test_level_keeps_what_stands_out_and_lowers_the_rest():
    words, meaning = np.zeros((1, 8_000)), np.zeros((1, 8_000))
    words[0, :20], words[0, 20], meaning[0, :20] = 12.0, 15.0, 3.0
    leveled = level(words, meaning)[0]
    assert leveled[0] == pytest.approx(3.0)
    assert leveled[20] == pytest.approx(6.0)
    assert np.array_equal(level(words[:, :400], meaning[:, :400]), words[:, :400])


def test_evidence_places_implied_tools_right_after_the_first_ten():
    recipes = [
        ToolProfile(name=f"t{at}", description=" ".join(["Find a recipe", *map(str, range(at))])) for at in range(15)
    ]
    others = [ToolProfile(name=f"o{at}", description="Merge two accounts") for at in range(30)]
    index = Retriever([*recipes, _tool("fs__write_file"), _tool("fs__read_file"), *others])

    def order(text: str) -> list[int]:
        return np.argsort(-index.evidence(Context(text=text)), kind="stable").tolist()

    assert order("find a recipe and save it to dinner.md")[:12] == [*range(10), 16, 15]
    assert order("find a recipe")[:12] == [*range(12)]
