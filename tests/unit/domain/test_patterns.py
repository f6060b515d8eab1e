"""Patterns that can stand for no tool are told from those that can."""

import pytest

from riglm.domain.policy import fault


@pytest.mark.parametrize(
    ("pattern", "fix"),
    [
        ("", "name a tool"),
        ("  ", "name a tool"),
        (" a", "write 'a'"),
        ("[", "close it"),
        ("delete[_", "close it"),
        ("a[0-9]b[", "close it"),
        ("[z-a]*", "from its lower end to its upper one"),
        ("delete_*,drop_*", "make one entry of each: 'delete_*', 'drop_*'"),
        ("mcp__github__delete_repo", "write 'delete_repo', or 'github__delete_repo'"),
        ("mcp__riglm__github__*", "write 'github__*'"),
    ],
)
def test_a_pattern_that_can_stand_for_no_tool_has_a_fault_and_a_fix(pattern, fix):
    found = fault(pattern)
    assert found is not None
    assert fix in found[1]


@pytest.mark.parametrize(
    "pattern",
    [
        "a",
        "delete_*",
        "?",
        "[a-z]*",
        "[!a]*",
        "[]a]x",
        "[[]x",
        "[a,b]x",
        "a b",
        "mcp__tool",
        "mcp__*",
        "[m]cp__a__b",
        "löschen",
    ],
)
def test_a_pattern_that_can_stand_for_a_tool_has_no_fault(pattern):
    assert fault(pattern) is None
