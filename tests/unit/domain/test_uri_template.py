"""Which template of resources a URI could come from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.uri_template import UriTemplate

LITERALS = st.text("ab/:{", max_size=4).map(lambda text: text.replace("{", ""))
PARTS = st.lists(LITERALS, min_size=2, max_size=5)


@pytest.mark.parametrize(
    ("template", "uri", "fits"),
    [
        ("note://{id}", "note://1", True),
        ("note://{id}", "note://", True),
        ("note://{id}", "memo://1", False),
        ("note://{id}", "note:/1", False),
        ("note://{id}", "note://{id}", True),
        ("note://{id}/text", "note://1/2/text", True),
        ("note://{id}/text", "note://1/texts", False),
        ("a{x}b{y}b", "a1b2b", True),
        ("a{x}b{y}b", "ab", False),
        ("a{x}a", "a", False),
        ("{+path}", "anything at all", True),
        ("file:///{path}{?query*}", "file:///a?b=c", True),
        ("fixed://uri", "fixed://uri", True),
        ("fixed://uri", "fixed://uri2", False),
        ("a.c{x}", "abc", False),
        ("open://{", "open://{", True),
        ("open://{", "open://x", False),
    ],
)
def test_every_expression_stands_for_any_text(template, uri, fits):
    assert UriTemplate(template).fits(uri) is fits


@given(PARTS, st.data())
def test_a_uri_made_from_a_template_fits_it(parts, data):
    made = parts[0] + "".join(data.draw(st.text("ab/x", max_size=3)) + part for part in parts[1:])
    assert UriTemplate("{x}".join(parts)).fits(made)


@given(PARTS)
def test_the_weight_is_the_length_of_what_is_fixed(parts):
    assert UriTemplate("{x}".join(parts)).weight == sum(map(len, parts))


def test_a_hostile_template_takes_no_longer_than_the_uri_is_long():
    assert not UriTemplate("{a}x" * 500 + "y").fits("x" * 100_000)
