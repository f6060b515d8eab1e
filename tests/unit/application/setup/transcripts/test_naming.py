"""A tool in a transcript is found behind the riglm that stands in front of its server, however clients spell it."""

import pytest

from riglm.application.setup.transcripts.collecting import ProxyInstance, ResolvedTool, ToolNames
from riglm.domain.naming import prefixed

SEVERAL = ProxyInstance(servers=("github", "git_hub.eu", "my-docs"))


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


def test_a_name_that_the_client_altered_is_told_by_what_riglm_listed():
    listed = {"github__create.issue", "github__other"}
    assert found("github__create_issue", SEVERAL, listed=listed) == ResolvedTool("github__create.issue", "github")
    assert found("create.issue", SEVERAL, server="github", listed=listed) == ResolvedTool(
        "github__create.issue", "github"
    )


def test_where_one_letter_parts_server_and_tool_only_servers_that_are_known_are_found():
    assert found("github_create_issue", SEVERAL, separator="_") == ResolvedTool("github__create_issue", "github")
    assert found("gitlab_create_issue", SEVERAL, separator="_") is None


def test_a_name_that_riglm_would_cut_is_cut():
    tool = "t" * 64
    assert found(f"github__{tool}", SEVERAL) == ResolvedTool(prefixed("github", tool), "github")
