"""A tool in a transcript is found behind the riglm that stands in front of its server, however clients spell it."""

import pytest

from riglm.application.setup.transcripts.naming import ProxyInstance, ResolvedTool, ToolNames
from riglm.domain.naming import prefixed

SEVERAL = ProxyInstance(servers=("github", "git_hub.eu", "my-docs"))
ONE = ProxyInstance(servers=("github",))


def found(name, *fronts, server=None, separator="__", listed=()):
    return ToolNames(fronts, listed).find(name, server, separator)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("github__create_issue", ResolvedTool("github__create_issue", "github")),
        ("git_hub_eu__create", ResolvedTool("git_hub.eu__create", "git_hub.eu")),
        ("plugin_docs_my-docs__read", ResolvedTool("my-docs__read", "my-docs")),
        ("claude_ai_github__create_issue", ResolvedTool("github__create_issue", "github")),
        ("riglm__github__create_issue", ResolvedTool("github__create_issue", "github", behind_riglm=True)),
        ("riglm__set_context", ResolvedTool("set_context", "", behind_riglm=True)),
        ("github__", None),
        ("gitlab__create_issue", None),
    ],
)
def test_the_name_of_claude_code_for_one_of_several_servers(name, known):
    assert found(name, SEVERAL) == known


def test_a_server_alone_keeps_the_names_of_its_tools():
    assert found("github__create_issue", ONE) == ResolvedTool("create_issue", "github")
    assert found("riglm__create_issue", ONE) == ResolvedTool("create_issue", "github", behind_riglm=True)


def test_a_name_that_the_client_altered_is_told_by_what_riglm_listed():
    listed = {"github__create.issue", "github__other"}
    assert found("github__create_issue", SEVERAL, listed=listed) == ResolvedTool("github__create.issue", "github")
    assert found("create.issue", SEVERAL, server="github", listed=listed) == ResolvedTool(
        "github__create.issue", "github"
    )


def test_a_server_may_have_another_name_behind_riglm():
    front = ProxyInstance(servers=("my-load",), before={"my load": "my-load"}, entries=frozenset({"tools"}))
    assert found("my_load__echo", front) == ResolvedTool("echo", "my-load")
    assert found("echo", front, server="my load") == ResolvedTool("echo", "my-load")
    assert found("tools__echo", front) == ResolvedTool("echo", "my-load", behind_riglm=True)


def test_the_first_riglm_that_has_the_server_counts():
    assert found("github__x", ProxyInstance(servers=("docs",)), SEVERAL, ONE) == ResolvedTool("github__x", "github")


def test_where_one_letter_parts_server_and_tool_only_servers_that_are_known_are_found():
    assert found("github_create_issue", SEVERAL, separator="_") == ResolvedTool("github__create_issue", "github")
    assert found("gitlab_create_issue", SEVERAL, separator="_") is None


def test_before_any_riglm_has_servers_all_are_taken_for_several():
    assert found("github__create_issue") == ResolvedTool("github__create_issue", "github")
    assert found("create_issue", ProxyInstance(servers=()), server="github") == ResolvedTool(
        "github__create_issue", "github"
    )
    assert found("shell") is None


def test_a_name_that_riglm_would_cut_is_cut():
    tool = "t" * 64
    assert found(f"github__{tool}", SEVERAL) == ResolvedTool(prefixed("github", tool), "github")


@pytest.mark.parametrize(
    ("naming", "listed", "name"),
    [("none", (), "search"), ("on_collision", (), "search"), ("on_collision", ("github__search",), "github__search")],
)
def test_the_naming_of_the_configuration_counts(naming, listed, name):
    front = ProxyInstance(servers=("github", "docs"), naming=naming)
    assert found("github__search", front, listed=listed) == ResolvedTool(name, "github")
