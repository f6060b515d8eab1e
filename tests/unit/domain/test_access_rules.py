import pytest

from riglm.domain.access import AccessRules
from riglm.domain.schemas.filtering import AccessSettings
from tests.unit.domain.test_settings import complaint, settings

AUTH = {"auth": {"issuer": "https://login.example.org", "audience": "riglm"}}
SERVERS = {"files": {"command": "x"}, "shell": {"command": "x"}}


def rules(**groups):
    given = {"*" if name == "everyone" else name: AccessSettings(**rule) for name, rule in groups.items()}
    return AccessRules(given, ("files", "shell"))


def test_a_caller_has_the_rules_of_its_groups_and_of_everyone():
    made = rules(dev={"servers": ["files"]}, ops={"servers": ["shell"]}, everyone={"tools": ["read"]})
    assert made.find(frozenset({"dev", "unknown"}), "default") == "dev\n*"
    assert made.find(frozenset(), "default") == "*"


def test_a_rule_holds_in_its_profiles_only():
    made = rules(dev={"profiles": ["desk", "review-*"]})
    groups = frozenset({"dev"})
    found = {name: made.find(groups, name) for name in ("desk", "review-1", "default")}
    assert found == {"desk": "dev", "review-1": "dev", "default": ""}


def test_a_rule_for_no_server_that_is_in_use_applies_to_nobody():
    assert rules(dev={"servers": ["tickets"]}).find(frozenset({"dev"}), "default") == ""


def test_tools_are_permitted_by_one_rule_and_not_by_parts_of_two():
    made = rules(dev={"servers": ["files"], "tools": ["read_*"]}, ops={"servers": ["shell"]})
    both = made.find(frozenset({"dev", "ops"}), "default")
    assert made.permits(both, "files", "read_file")
    assert made.permits(both, "shell", "run")
    assert not made.permits(both, "files", "run")
    assert not made.permits("dev", "shell", "read_file")
    assert not made.permits("", "files", "read_file")
    assert not made.permits("deleted", "files", "read_file")


def test_a_server_cannot_name_its_tools_like_those_of_another_one():
    made = rules(dev={"tools": ["files__read"]})
    assert made.permits("dev", "files", "read")
    assert not made.permits("dev", "shell", "files__read")


def test_a_pattern_for_the_names_of_tools_does_not_match_the_name_of_their_server():
    made = rules(dev={"tools": ["files_*"]})
    assert made.permits("dev", "files", "files_read")
    assert not made.permits("dev", "files", "run")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"downstream": {}, "access": {"dev": {}}}, "callers without a token have no groups"),
        ({"access": {"dev": {"servers": ["filse"]}}}, "there is none that is called 'filse' — fix: use: files, shell"),
        ({"access": {"dev": {"profiles": ["desk"]}}}, "there is none that is called 'desk' — fix: use: default"),
        ({"access": {"dev\nops": {}}}, "cannot be the name of a group"),
        ({"access": {"dev": {"tools": []}}}, "at least 1 item"),
        ({"access": {"dev": {"tools": [""]}}}, "empty"),
        ({"naming": "none", "access": {"dev": {"servers": ["files"]}}}, "with `naming: prefix` only"),
        ({"downstream": {"auth": {"issuer": "http://login.example.org", "audience": "a"}}}, "use https"),
        ({"downstream": {"auth": AUTH["auth"] | {"scopes": ["a b"]}}}, "is not one scope"),
        ({"downstream": {"host": "0.0.0.0"}}, "no token is set"),
    ],
)
def test_rules_that_cannot_work_are_errors(values, words):
    assert words in complaint(**{"mcpServers": SERVERS, "downstream": AUTH, **values})


def test_an_issuer_is_enough_to_listen_to_other_machines():
    assert settings(downstream={"host": "0.0.0.0", "allowed_hosts": ["tools.example.org"], **AUTH})
