"""Changes to YAML text leave everything else as it is, to the byte."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from riglm.adapters.configuration import yaml_text
from riglm.adapters.configuration.yaml_text import YamlNotEditableError

TEXT = """\
# riglm
upstream: {url:   "http://x/y", auth: {type: bearer, token: "${TOKEN}"}}   # one server

mcpServers:
    a:
        command:   npx
        args: [ -y,  "pkg" ]
filtering:          # what is shown
    # the most
    max_tools:   20     # many
    denylist:
      - 'a*'
      # the worst
      - "b"   # never

# about logs
logging:
    level: 'info'
retention:   # for ever
privacy: ~
# the end
"""


def lines_changed(text: str) -> tuple[list[str], list[str]]:
    """The lines that are gone and those that are new."""
    before, after = TEXT.splitlines(), text.splitlines()
    return [line for line in before if line not in after], [line for line in after if line not in before]


@pytest.mark.parametrize(
    ("path", "value", "gone", "new"),
    [
        ("filtering.max_tools", 30, ["    max_tools:   20     # many"], ["    max_tools:   30     # many"]),
        ("filtering.mode", "shadow", [], ["    mode: shadow"]),
        ("filtering.denylist", ["a*", "b", "c d"], [], ['      - "c d"']),
        ("filtering.denylist", ["b"], ["      - 'a*'"], []),
        ("filtering.denylist", ["x", "b"], ["      - 'a*'", '      - "b"   # never'], ["      - x", "      - b"]),
        ("logging.level", "debug", ["    level: 'info'"], ["    level: 'debug'"]),
        ("retention.session_days", 3.0, [], ["    session_days: 3"]),
        ("privacy.arguments", "none", ["privacy: ~"], ["privacy: {arguments: none}"]),
        ("naming", "none", [], ["naming: none"]),
        ("predictor.options.x", [1.5, True, "yes", "é", None], [], [
            "predictor:", "    options:", '        x: [1.5, true, "yes", "é", null]']),
    ],
)  # fmt: skip
def test_only_the_lines_of_the_change_are_others(path: str, value: object, gone: list[str], new: list[str]) -> None:
    text = yaml_text.with_value(TEXT, path.split("."), value)
    assert lines_changed(text) == (gone, new)


def test_an_emptied_list_stands_behind_its_key() -> None:
    text = yaml_text.with_value(TEXT, ["filtering", "denylist"], [])
    assert "    denylist: []\n      # the worst\n\n# about logs" in text


@pytest.mark.parametrize("value", [0, "x", {"a": 1}])
def test_what_is_no_list_takes_the_place_of_one(value: object) -> None:
    text = yaml_text.with_value("b:\n  a:  # why\n  - x\n  c: 1\n", ["b", "a"], value)
    assert yaml.safe_load(text) == {"b": {"a": value, "c": 1}}
    assert "# why\n" in text


def test_what_stands_in_braces_stays_there() -> None:
    text = yaml_text.with_value(TEXT, ["upstream", "url"], "http://z")
    text = yaml_text.with_value(text, ["upstream", "auth", "more"], 1)
    expected = 'upstream: {url:   "http://z", auth: {type: bearer, token: "${TOKEN}", more: 1}}   # one server'
    assert lines_changed(text)[1] == [expected]


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        ("filtering.max_tools", ["    max_tools:   20     # many"]),
        ("filtering.denylist", ["    denylist:", "      - 'a*'", "      # the worst", '      - "b"   # never']),
        ("mcpServers.a.args", ['        args: [ -y,  "pkg" ]']),
        ("logging.level", ["logging:", "    level: 'info'"]),
        ("logging.nothing", []),
        ("nothing.at.all", []),
    ],
)
def test_a_key_goes_with_its_lines(path: str, gone: list[str]) -> None:
    assert lines_changed(yaml_text.without(TEXT, path.split("."))) == (gone, [])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("x: 1\na:\n  b: 5\n", "x: 1\n"),
        ("x: 1\na: {b: 5}\n", "x: 1\n"),
        ("x: 1\na:\n  b: {c: 5}\ny: 2\n", "x: 1\ny: 2\n"),
        ("x: 1\na:  # mine\n  b: 5\n", "x: 1\na:  # mine\n"),
        ("x: 1\na:\n  # mine\n  b: 5\n", "x: 1\na:\n  # mine\n"),
        ("a: {b: 5, c: 6}\n", "a: {c: 6}\n"),
    ],
)
def test_a_section_goes_with_the_last_that_it_says(text: str, left: str) -> None:
    path = ["a", "b", "c"] if "b: {c" in text else ["a", "b"]
    assert yaml_text.without(text, path) == left


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("x:\n            y: 1\nz:\n  y: 1\nw:\n  y: 1\n", 2),
        ("x:\n            y: 1\nz:\n    y: 1\n", 4),
        ("        x:\n            y: 1\n", 4),
    ],
)
def test_a_section_is_indented_as_most_are(text: str, step: int) -> None:
    column = len(text) - len(text.lstrip())
    added = " " * column + "a:\n" + " " * (column + step) + "b: 5\n"
    assert yaml_text.with_value(text, ["a", "b"], 5) == text + added


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "a:\n  b: 5\n"),
        ("# only this", "# only this\na:\n  b: 5\n"),
        ("x: 1", "x: 1\na:\n  b: 5\n"),
        ("{}\n", "{a: {b: 5}}\n"),
        ("{x: 1,}\n", "{x: 1, a: {b: 5},}\n"),
        ("x: 1\r\na:\r\n  c: 2\r\n", "x: 1\r\na:\r\n  c: 2\r\n  b: 5\r\n"),
    ],
)
def test_a_section_is_added_in_the_manner_of_the_file(text: str, expected: str) -> None:
    assert yaml_text.with_value(text, ["a", "b"], 5) == expected


@pytest.mark.parametrize("text", ["a: &x {b: 1}\nc: *x\n", "a: &x 1\nc: *x\n"])
def test_what_is_written_elsewhere_is_left_to_people(text: str) -> None:
    with pytest.raises(YamlNotEditableError, match="elsewhere"):
        yaml_text.with_value(text, ["c", "b"], 2)


def test_a_value_of_several_lines_is_replaced_whole() -> None:
    text = "a: |\n  one\n  two\n\n# next\nb: 1\n"
    assert yaml_text.with_value(text, ["a"], "three") == "a: three\n\n# next\nb: 1\n"


KEYS = st.sampled_from(["a", "b", "a b", "c-d", "yes", "1"])
LEAVES = st.one_of(
    st.integers(), st.booleans(), st.floats(allow_nan=False), st.text(max_size=12), st.lists(st.text(max_size=4))
)
TREES = st.dictionaries(KEYS, st.recursive(LEAVES, lambda inner: st.dictionaries(KEYS, inner, max_size=3)), max_size=4)


@given(
    tree=TREES, path=st.lists(KEYS, min_size=1, max_size=3), value=LEAVES, style=st.sampled_from([None, False, True])
)
def test_the_changed_text_says_what_was_asked_for(
    tree: dict, path: list[str], value: object, style: bool | None
) -> None:
    text = yaml.safe_dump(tree, default_flow_style=style, allow_unicode=True, sort_keys=False)
    here = expected = yaml.safe_load(text) or {}
    for key in path[:-1]:
        here[key] = here[key] if isinstance(here.get(key), dict) else {}
        here = here[key]
    here[path[-1]] = value
    try:
        changed = yaml_text.with_value(text, path, value)
    except YamlNotEditableError:
        return
    assert yaml.safe_load(changed) == expected
    left = yaml.safe_load(yaml_text.without(changed, path)) or {}
    for key in path[:-1]:
        left = left.get(key) or {}
    assert path[-1] not in left
