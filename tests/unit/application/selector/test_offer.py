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


def test_an_object_is_read_once_however_often_it_is_given():
    tools, read = [Counted("a"), Counted("b")], ToolReader()
    first = read(tools)
    assert read(list(tools)) is first
    assert [tool.looks for tool in tools] == [1, 1]


def test_a_definition_that_was_changed_in_place_is_read_anew():
    definition, read = {"name": "a", "description": "old"}, ToolReader()
    before = read([definition]).catalog
    definition["description"] = "new"
    assert read([definition]).catalog.digest != before.digest


def test_equal_tools_in_other_objects_come_out_as_the_newest_objects():
    read = ToolReader()
    first = read([{"name": "a"}])
    again = {"name": "a"}
    assert read([again]).objects["a"] is again
    assert read([again]).catalog is first.catalog


def test_two_tools_of_one_name_are_refused_and_one_given_twice_is_one():
    tool = {"name": "a"}
    assert list(ToolReader()([tool, tool]).objects) == ["a"]
    with pytest.raises(UnusableToolError, match="two tools are called 'a' — fix: give one of them another name"):
        ToolReader()([tool, {"name": "a"}])


def test_what_stands_before_two_underscores_is_the_server():
    owners = ToolReader()([{"name": name} for name in ("git__log", "log", "__log", "git__")]).owners
    assert owners == {"git__log": ("git", "log"), "log": ("", "log"), "__log": ("", "__log"), "git__": ("", "git__")}


def test_a_tool_is_named_by_itself_by_its_like_or_by_its_name():
    tool = Counted("a")
    offer = ToolReader()([tool])
    assert [offer.name_of(each) for each in ("a", tool, {"name": "a"}, "unknown")] == ["a", "a", "a", "unknown"]
    assert tool.looks == 1


def test_a_new_built_in_tool_makes_another_offer_of_the_same_catalog():
    tool, read = {"name": "a"}, ToolReader()
    first = read([tool, {"type": "web_search"}])
    again = read([tool, {"type": "file_search"}])
    assert again.chosen(()) == ({"type": "file_search"},)
    assert again.catalog is first.catalog
    assert read([tool]).chosen(("a",)) == (tool,)
