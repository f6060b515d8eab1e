"""The tools that an agent has, read once."""

import pytest

from riglm.application.selector.offer import ToolReader, UnusableToolError


class Counted:
    """A tool that counts how often its description is looked at."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.looks = 0

    @property
    def description(self) -> str:
        self.looks += 1
        return "counts"


def test_a_definition_that_was_changed_in_place_is_read_anew():
    definition, read = {"name": "a", "description": "old"}, ToolReader()
    before = read([definition]).catalog
    definition["description"] = "new"
    assert read([definition]).catalog.digest != before.digest


def test_two_tools_of_one_name_are_refused_and_one_given_twice_is_one():
    tool = {"name": "a"}
    assert list(ToolReader()([tool, tool]).objects) == ["a"]
    with pytest.raises(UnusableToolError, match="two tools are called 'a' — fix: give one of them another name"):
        ToolReader()([tool, {"name": "a"}])


def test_a_tool_is_named_by_itself_by_its_like_or_by_its_name():
    tool = Counted("a")
    offer = ToolReader()([tool])
    assert [offer.name_of(each) for each in ("a", tool, {"name": "a"}, "unknown")] == ["a", "a", "a", "unknown"]
    assert tool.looks == 1
