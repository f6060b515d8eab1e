"""What the tool answers, whatever it is asked and whatever is stored."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from riglm.application.knowledge.definition import OUTPUT_SCHEMA
from riglm.domain.knowledge import Embedding, Entity, Observation, Origin
from riglm.domain.session import uuid7
from tests.unit.application.knowledge.voices import Stage, a_thought, embedded
from tests.waiting import WAIT_SECONDS

SCHEMA = Draft202012Validator(OUTPUT_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
WORDS = ("falcon", "ridge", "north", "migration", "tea.", "Whale!", "\ud800", "\x00", "😀", "\u200b", "İ", "a\nb")
VECTORS = [embedded(text) for text in ("falcon", "north ridge", "tea", "falcon north")]
EMBEDDINGS = [
    *VECTORS,
    None,
    Embedding(model="another", vector=VECTORS[0].vector),
    Embedding(model=VECTORS[0].model, vector=VECTORS[0].vector[:8]),
]
QUESTIONS: dict[str, list[Any]] = {
    "top_k": [-5, 1, 2, 3, 10, 50, 60],
    "mix": [-1, 0, 0.01, 0.5, 0.6, 0.99, 1, 2],
    "floor": [-1, 0, 0.1, 0.3, 0.7, 1, 2],
    "include_private": [True, False],
    "include_tags": [[], ["red"], ["none"]],
    "exclude_tags": [[], ["odd"]],
}


class Chance(random.Random):
    """Makes stores and questions by chance; hypothesis gives the seed."""

    def text(self) -> str:
        words = " ".join(self.choices(WORDS, k=self.randint(1, 8)))
        return self.choice([words, words, words, "falcon. " * 150, "falcon " * 150, "north"])

    def pieces(self, most: int, **more: Sequence[Any]) -> list[dict[str, Any]]:
        return [
            {
                "owner": self.choice(["", "", "somebody"]),
                "text": self.text(),
                "created_at": self.choice([0.0, -1e12, 1e18, 1_756_847_460.5]),
                "tags": self.choice([(), ("red",), ("red", "odd")]),
                "embedding": self.choice(EMBEDDINGS),
                **{name: self.choice(values) for name, values in more.items()},
            }
            for _ in range(self.randint(0, most))
        ]

    def question(self) -> dict[str, Any]:
        said = self.sample(sorted(QUESTIONS), self.randint(0, len(QUESTIONS)))
        query = self.choice(["falcon", "north ridge", "tea \x00", "😀"])
        return {"query": query, **{name: self.choice(QUESTIONS[name]) for name in said}}


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_every_answer_is_of_the_schema_whatever_is_stored(seed: int):
    chance, stage = Chance(seed), Stage()
    thoughts = chance.pieces(8, origin=list(Origin), is_private=[True, False])
    entities = chance.pieces(3, name="ABC", kind=["person"])
    observations = chance.pieces(8, entity="ABC")
    stage.kept.add_thoughts([a_thought(**each) for each in thoughts])
    stage.kept.add_entities([Entity(id=uuid7(), **each) for each in entities])
    stage.kept.add_observations([Observation(id=uuid7(), **each) for each in observations])
    question = chance.question()
    answer = asyncio.run(stage.ask(**question))
    SCHEMA.validate(answer)
    said = answer["diagnostics"]
    assert said["k_ret"] == len(answer["snippets"]) <= said["k_req"]
    assert ("reason" in said) is ("no_results" in said) is (not answer["snippets"])
    mine = {*thoughts_of(thoughts, question), *texts_of(entities), *texts_of(observations)}
    assert all(any(whole.startswith(each["text"]) for whole in mine) for each in answer["snippets"])


def texts_of(pieces: list[Any]) -> list[str]:
    return [piece["text"].encode("utf-8", "replace").decode() for piece in pieces if piece["owner"] == ""]


def thoughts_of(pieces: list[Any], question: dict[str, Any]) -> list[str]:
    return texts_of([piece for piece in pieces if question.get("include_private") or not piece["is_private"]])


_anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=4,
)


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.sampled_from(["query", "top_k", "mix", "floor", "include_private", "include_tags", "exclude_tags", "more"]),
        _anything,
        max_size=4,
    )
)
def test_any_arguments_get_an_answer_or_invalid_params(arguments: dict[str, Any]):
    stage = Stage()
    result = asyncio.run(stage.result(arguments))
    if result.get("isError"):
        assert '{"error":{"code":"invalid_params"' in result["content"][0]["text"]
    else:
        SCHEMA.validate(result["structuredContent"])


async def test_numbers_of_hundreds_of_digits_are_put_on_the_bound():
    stage = Stage()
    for number in (b"1" + b"0" * 400, b"-1" + b"0" * 400):
        result = await stage.result(b'{"query":"falcon","top_k":%b,"mix":%b,"floor":%b}' % (number, number, number))
        assert result["structuredContent"]["diagnostics"]["k_req"] in (1, 50)


async def test_a_rehearsal_that_hangs_does_not_keep_it_from_ending():
    stage = Stage()
    stage.hangs = True
    stage.voice.get_ready()
    await asyncio.wait_for(stage.was_embedding.wait(), WAIT_SECONDS)
    await asyncio.wait_for(stage.voice.close(), WAIT_SECONDS)
