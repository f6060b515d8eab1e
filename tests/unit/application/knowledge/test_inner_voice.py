"""What the tool answers, whatever it is asked and whatever is stored."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from riglm.application.knowledge.definition import OUTPUT_SCHEMA
from tests.unit.application.knowledge.voices import Stage
from tests.waiting import WAIT_SECONDS

SCHEMA = Draft202012Validator(OUTPUT_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)


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
