"""What may become of a tool."""

from uuid import uuid4

import pytest

from riglm.domain.naming import NamePatterns
from riglm.domain.policy import Override, OverrideKind, OverrideScope, Policy, ToolVisibility, by_tool


def override(tool, kind, scope=OverrideScope.ALL, at=0.0):
    return Override(id=uuid4(), kind=kind, tool=tool, created_at=at, scope=scope, key="")


@pytest.mark.parametrize(
    "spelling",
    [
        "delete_repo",
        "DELETE_REPO",
        "Delete_Repo",
        "delete-repo",
        "delete.repo",
        "delete repo",
        " delete_repo",
        "deleteRepo",
        "DeleteRepo",
        "deleterepo",
        "delete__repo",
        "delete_repo\u200b",
        "delete_re\u00adpo",
        "delete_repo\n",
        "\uff44elete_repo",
    ],
)
def test_a_denied_name_is_denied_in_any_spelling(spelling):
    assert Policy(denied=NamePatterns(["delete_repo"])).decide(spelling) is ToolVisibility.DENIED


@pytest.mark.parametrize("pattern", ["delete_*", "Delete*", "delete-*", "*_repo", "*Repo", "d?lete_repo", "[cd]elete*"])
@pytest.mark.parametrize("spelling", ["delete_repo", "DELETE-REPO", "deleteRepo", "DeleteRepo"])
def test_a_denied_pattern_holds_in_any_spelling(pattern, spelling):
    assert Policy(denied=NamePatterns([pattern])).decide(spelling) is ToolVisibility.DENIED


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("delete_*", "deleted_items"),
        ("delete_repo", "delete_repos"),
        ("delete_repo", "github_delete_repo"),
        ("get_*", "budget_get"),
        ("[ab]_x", "c_x"),
        ("*", ""),
    ],
)
def test_a_denied_pattern_does_not_reach_other_tools(pattern, name):
    expected = ToolVisibility.DENIED if pattern == "*" else ToolVisibility.AUTO
    assert Policy(denied=NamePatterns([pattern])).decide(name) is expected


@pytest.mark.parametrize("pattern", ["delete_repo", "delete_*", "github__delete_repo", "github__*", "DeleteRepo"])
@pytest.mark.parametrize("name", ["github__delete_repo", "GitHub__Delete-Repo", "github__deleteRepo"])
def test_a_denied_name_is_denied_behind_the_name_of_its_server(pattern, name):
    assert Policy(denied=NamePatterns([pattern])).decide(name) is ToolVisibility.DENIED


def test_a_name_is_denied_behind_a_server_whose_name_has_a_separator_too():
    assert Policy(denied=NamePatterns(["drop"])).decide("my__db__drop") is ToolVisibility.DENIED
    assert Policy(denied=NamePatterns(["drop"])).decide("my__db__drops") is ToolVisibility.AUTO


def test_an_allowed_or_pinned_name_is_that_which_clients_see():
    policy = Policy(allowed=NamePatterns(["read", "a__write"]), pinned=NamePatterns(["write"]))
    assert [policy.decide(name) for name in ("a__read", "a__write")] == [ToolVisibility.DENIED, ToolVisibility.AUTO]


def test_an_allowlist_denies_whatever_is_not_on_it_exactly_as_spelt():
    policy = Policy(allowed=NamePatterns(["read_*", "Write"]))
    visibilities = {name: policy.decide(name) for name in ("read_file", "Write", "write", "Read_file", "other")}
    allowed = [name for name, visibility in visibilities.items() if visibility is ToolVisibility.AUTO]
    assert allowed == ["read_file", "Write"]


def test_what_is_on_both_lists_is_denied():
    policy = Policy(allowed=NamePatterns(["read_*"]), denied=NamePatterns(["read_secret"]))
    assert policy.decide("read_secret") is ToolVisibility.DENIED


def test_two_tools_that_differ_in_case_are_denied_together_and_allowed_apart():
    assert Policy(denied=NamePatterns(["read"])).decide("READ") is ToolVisibility.DENIED
    assert Policy(allowed=NamePatterns(["read"])).decide("READ") is ToolVisibility.DENIED


def test_a_pinned_tool_is_kept_unless_it_is_denied():
    policy = Policy(denied=NamePatterns(["b"]), pinned=NamePatterns(["a", "b"]))
    assert [policy.decide(name) for name in "abc"] == [
        ToolVisibility.ALWAYS,
        ToolVisibility.DENIED,
        ToolVisibility.AUTO,
    ]


def test_including_lifts_a_denial_and_shows_the_tool():
    mine = by_tool([override("a", OverrideKind.INCLUDE)])
    assert Policy(denied=NamePatterns(["a"])).decide("a", mine) is ToolVisibility.ALWAYS


def test_including_for_one_session_lifts_no_denial():
    mine = by_tool([override("a", OverrideKind.INCLUDE, OverrideScope.SESSION)])
    assert Policy(denied=NamePatterns(["a"])).decide("a", mine) is ToolVisibility.DENIED
    assert Policy().decide("a", mine) is ToolVisibility.ALWAYS


def test_pinning_lifts_no_denial():
    mine = by_tool([override("a", OverrideKind.PIN)])
    assert Policy(denied=NamePatterns(["a"])).decide("a", mine) is ToolVisibility.DENIED
    assert Policy().decide("a", mine) is ToolVisibility.ALWAYS


def test_a_tool_is_denied_by_the_other_names_that_it_has_and_only_including_lifts_that():
    policy = Policy(denied=NamePatterns(["one__a"]), pinned=NamePatterns(["a"]))
    others = ("a", "one__a")
    assert [policy.decide("a", None, each) for each in ((), others)] == [ToolVisibility.ALWAYS, ToolVisibility.DENIED]
    for kind, visibility in (
        (OverrideKind.PIN, ToolVisibility.DENIED),
        (OverrideKind.EXCLUDE, ToolVisibility.DENIED),
        (OverrideKind.INCLUDE, ToolVisibility.ALWAYS),
    ):
        assert policy.decide("a", by_tool([override("a", kind)]), others) is visibility


def test_a_name_in_which_very_many_servers_could_be_named_is_denied_where_anything_is():
    name = "a__" * 17 + "b"
    assert Policy(denied=NamePatterns(["c"])).decide(name) is ToolVisibility.DENIED
    assert Policy(denied=NamePatterns(["c"])).decide(name[3:]) is ToolVisibility.AUTO
    assert Policy().decide(name) is ToolVisibility.AUTO


def test_an_excluded_tool_is_away_but_not_denied():
    mine = by_tool([override("a", OverrideKind.EXCLUDE)])
    assert Policy(pinned=NamePatterns(["a"])).decide("a", mine) is ToolVisibility.NEVER


def test_of_including_and_excluding_the_later_one_counts():
    older, newer = override("a", OverrideKind.INCLUDE, at=1.0), override("a", OverrideKind.EXCLUDE, at=2.0)
    assert Policy().decide("a", by_tool([newer, older])) is ToolVisibility.NEVER
    newest = override("a", OverrideKind.INCLUDE, at=3.0)
    assert Policy().decide("a", by_tool([newest, newer, older])) is ToolVisibility.ALWAYS


def test_an_override_concerns_its_tool_alone():
    mine = by_tool([override("a", OverrideKind.EXCLUDE)])
    assert Policy().decide("b", mine) is ToolVisibility.AUTO


def test_a_name_of_a_million_signs_is_denied_where_anything_is():
    name = "a" * 1_000_000
    assert Policy(denied=NamePatterns(["b"])).decide(name) is ToolVisibility.DENIED
    assert Policy(allowed=NamePatterns(["*"])).decide(name) is ToolVisibility.DENIED
    assert Policy(pinned=NamePatterns(["b"])).decide(name) is ToolVisibility.AUTO
