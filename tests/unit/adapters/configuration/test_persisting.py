from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from riglm.adapters.configuration.loading import Options, load
from riglm.adapters.configuration.persisting import ConfigurationDocuments
from riglm.domain.control import ConflictError, ControlError, InvalidInputError

TEXT = """\
upstream: {url: "http://h/mcp", headers: {X: "${KEY}"}}   # a reference
naming: ${NAMING:-none}
filtering:
  max_tools:  9   # few
"""


class Riglm:
    """One that was started with a file."""

    def __init__(
        self,
        folder: Path,
        text: str = TEXT,
        environment: Mapping[str, str] | None = None,
        name: str = "riglm.yaml",
        **options: Any,
    ) -> None:
        self.file = folder / name
        self.file.write_text(text, "utf-8", newline="")
        self.options = Options(config=self.file, **options)
        self.environment = {"KEY": "canary", **(environment or {})}
        self.folder = folder
        configuration = self.load()
        self.settings = configuration.settings
        self.documents = ConfigurationDocuments(configuration, self.environment, folder)

    def load(self) -> Any:
        return load(self.options, environment=self.environment, directory=self.folder)

    def write(self, document: Mapping[str, Any]) -> str:
        """Write a change; the text of the file then."""
        written = self.documents.write_temporary(self.settings, document, lambda _: True)
        if written is not None:
            written.take_over()
        return self.file.read_text("utf-8")

    def refuses(self, document: Mapping[str, Any]) -> str:
        """Why a change is not written; nothing of it is left anywhere."""
        before, there = self.file.read_bytes(), sorted(self.folder.iterdir())
        with pytest.raises(ControlError) as refused:
            self.write(document)
        assert self.file.read_bytes() == before
        assert sorted(self.folder.iterdir()) == there
        assert "canary" not in str(refused.value)
        return str(refused.value)


def test_one_value_changes_and_all_else_stays(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path)
    assert riglm.write({"filtering": {"max_tools": 8}}) == TEXT.replace("9   # few", "8   # few")
    assert riglm.load().settings.filtering.max_tools == 8


def test_what_the_file_says_already_is_not_written(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path)
    assert riglm.documents.write_temporary(riglm.settings, {"filtering": {"max_tools": 9}}, lambda _: True) is None
    shown = riglm.documents.shown(riglm.settings)
    assert riglm.documents.write_temporary(riglm.settings, shown, lambda _: True) is None


def test_a_default_is_taken_out_of_the_file(tmp_path: Path) -> None:
    assert Riglm(tmp_path).write({"filtering": {"max_tools": None}}) == TEXT.replace(
        "filtering:\n  max_tools:  9   # few\n", ""
    )


def test_a_default_that_the_file_does_not_give_is_not_written(tmp_path: Path) -> None:
    assert Riglm(tmp_path).write({"filtering": {"min_tools": 5}}) == TEXT


def test_what_was_changed_in_the_file_meanwhile_stays(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path)
    riglm.file.write_text(TEXT + "  min_tools: 1  # by hand\nretention: {session_days: 1}\n", "utf-8")
    text = riglm.write({"filtering": {"max_tools": 8}})
    assert text == TEXT.replace("9   #", "8   #") + "  min_tools: 1  # by hand\nretention: {session_days: 1}\n"


def test_a_change_that_does_not_go_with_what_is_in_the_file_by_now_is_refused(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path)
    riglm.file.write_text(TEXT + "  min_tools: 9\n", "utf-8")
    assert "filtering.max_tools: max_tools (8) is less than min_tools (9)" in riglm.refuses(
        {"filtering": {"max_tools": 8}}
    )


@pytest.mark.parametrize("text", ["filtering: {max_tols: 1}\n", "{\n", "upstream: {url: '${UNSET}'}\n"])
def test_a_file_that_is_not_valid_any_more_is_left_alone(tmp_path: Path, text: str) -> None:
    riglm = Riglm(tmp_path)
    riglm.file.write_text(text, "utf-8")
    assert "as it is now" in riglm.refuses({"filtering": {"max_tools": 8}})


def test_a_file_that_changes_at_the_last_moment_is_not_overwritten(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path)
    written = riglm.documents.write_temporary(riglm.settings, {"filtering": {"max_tools": 8}}, lambda _: True)
    assert written is not None
    riglm.file.write_text(TEXT + "# by hand\n", "utf-8")
    with pytest.raises(ConflictError, match="changed by another process"):
        written.take_over()
    written.discard()
    assert [file.name for file in tmp_path.iterdir()] == ["riglm.yaml"]
    assert riglm.file.read_text("utf-8") == TEXT + "# by hand\n"


def test_what_a_variable_sets_is_not_written(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path, environment={"RIGLM_FILTERING__MAX_TOOLS": "7"})
    assert "filtering.max_tools: RIGLM_FILTERING__MAX_TOOLS sets it" in riglm.refuses({"filtering": {"max_tools": 8}})
    assert riglm.write({"filtering": {"max_tools": 7}}) == TEXT


def test_what_an_option_sets_is_not_written(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path, values=[("--no-filter", ("filtering", "enabled"), False)])
    assert "filtering.enabled: --no-filter sets it" in riglm.refuses({"filtering": {"enabled": True}})


def test_a_map_of_which_a_variable_sets_a_part_is_not_emptied(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path, environment={"RIGLM_FILTERING__CLIENTS__X": "full"})
    assert "RIGLM_FILTERING__CLIENTS__X sets it" in riglm.refuses({"filtering": {"clients": None}})


@pytest.mark.parametrize(
    "document", [{"upstream": {"headers": {"X": "other"}}}, {"naming": "prefix"}], ids=["secret", "plain"]
)
def test_a_reference_in_the_file_stays_one(tmp_path: Path, document: dict[str, Any]) -> None:
    assert "the file takes it from a variable" in Riglm(tmp_path).refuses(document)


def test_a_value_that_would_be_a_reference_is_not_written(tmp_path: Path) -> None:
    assert "taken for a variable" in Riglm(tmp_path).refuses({"filtering": {"profile": "${KEY}"}})


def test_a_secret_behind_a_mask_is_not_written_out(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path)
    shown = riglm.documents.shown(riglm.settings)
    shown["filtering"]["max_tools"] = 8
    assert riglm.write(shown) == TEXT.replace("9   # few", "8   # few")


def test_without_a_file_nothing_is_written(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path)
    bare = load(Options(url="http://h/mcp"), environment={}, directory=tmp_path / "nowhere")
    documents = ConfigurationDocuments(bare, {}, tmp_path)
    with pytest.raises(ConflictError, match=r"started without a configuration file.*--config FILE"):
        documents.write_temporary(bare.settings, {"filtering": {"max_tools": 8}}, lambda _: True)
    riglm.file.unlink()
    with pytest.raises(ConflictError, match="is no file any more"):
        riglm.documents.write_temporary(riglm.settings, {"filtering": {"max_tools": 8}}, lambda _: True)


def test_a_link_stays_one_and_its_target_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "real"
    folder.mkdir()
    riglm = Riglm(folder)
    riglm.file.chmod(0o640)
    link = tmp_path / "riglm.yaml"
    link.symlink_to(riglm.file)
    configuration = load(Options(config=link), environment=riglm.environment, directory=tmp_path)
    documents = ConfigurationDocuments(configuration, riglm.environment, tmp_path)
    written = documents.write_temporary(configuration.settings, {"filtering": {"max_tools": 8}}, lambda _: True)
    assert written is not None
    written.take_over()
    assert link.is_symlink()
    assert riglm.file.read_text("utf-8") == TEXT.replace("9   # few", "8   # few")
    assert riglm.file.stat().st_mode & 0o7777 == 0o640
    assert sorted(file.name for file in tmp_path.iterdir()) == ["real", "riglm.yaml"]


def test_a_file_without_write_permission_was_protected_on_purpose_and_stays(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path)
    riglm.file.chmod(0o444)
    assert "has no write permission" in riglm.refuses({"filtering": {"max_tools": 8}})
    assert riglm.file.stat().st_mode & 0o777 == 0o444
    assert riglm.write({"filtering": {"max_tools": 9}}) == TEXT  # nothing to write


def test_the_marks_at_the_ends_of_lines_and_at_the_beginning_stay(tmp_path: Path) -> None:
    text = "\ufeff" + TEXT.replace("\n", "\r\n")
    riglm = Riglm(tmp_path, text)
    riglm.write({"filtering": {"max_tools": 8, "mode": "shadow"}})
    expected = text.replace("9   # few\r\n", "8   # few\r\n  mode: shadow\r\n")
    assert riglm.file.read_bytes() == expected.encode()


def test_plain_json_keeps_its_order_and_its_indentation(tmp_path: Path) -> None:
    text = '{\n    "upstream": {\n        "url": "http://h"\n    },\n    "filtering": {"max_tools": 9}\n}\n'
    riglm = Riglm(tmp_path, text, name="riglm.json")
    expected = text.replace('{"max_tools": 9}', '{\n        "max_tools": 8\n    }')
    assert riglm.write({"filtering": {"max_tools": 8}}) == expected


def test_json_with_comments_is_left_to_people(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path, '{"upstream": {"url": "http://h"}} // mine\n', name="riglm.json")
    assert "comments" in riglm.refuses({"filtering": {"max_tools": 8}})


def test_what_yaml_shares_between_places_is_left_to_people(tmp_path: Path) -> None:
    text = "upstream: {url: 'http://h'}\nfiltering: {allowlist: &names [a], pinned: *names}\n"
    riglm = Riglm(tmp_path, text)
    assert "elsewhere in the file" in riglm.refuses({"filtering": {"pinned": ["b"]}})
    assert "by hand" in riglm.refuses({"filtering": {"allowlist": ["b"]}})


def test_what_was_written_for_the_next_start_is_taken_back_by_what_is_in_force_and_by_null(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path)
    written = TEXT + "retention:\n  session_days: 3\n"
    assert riglm.write({"retention": {"session_days": 3}}) == written
    assert riglm.write({"retention": {"session_days": riglm.settings.retention.session_days}}) != written
    assert riglm.load().settings == riglm.settings
    riglm.write({"retention": {"session_days": 4}})
    assert riglm.write({"retention": {"session_days": None}}) == TEXT
    riglm.write({"retention": {"session_days": 5}})
    riglm.write(riglm.documents.shown(riglm.settings))
    assert riglm.load().settings == riglm.settings


def test_what_is_in_force_behind_a_mask_is_written_again(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path, TEXT + "storage: {url: 'postgresql://me:canary@host/db'}\n")
    shown = riglm.documents.shown(riglm.settings)["storage"]["url"]
    riglm.write({"storage": {"url": "postgresql://me:other@elsewhere/db"}})
    riglm.write({"storage": {"url": shown}})
    assert riglm.load().settings.storage.url == riglm.settings.storage.url


@pytest.mark.parametrize("value", [8, 9, None])
def test_what_somebody_changed_in_the_file_since_it_was_read_is_not_lost(tmp_path: Path, value: int | None) -> None:
    riglm = Riglm(tmp_path)
    riglm.file.write_text(TEXT.replace("9   # few", "12"), "utf-8")
    reason = riglm.refuses({"filtering": {"max_tools": value}})
    assert reason.startswith("filtering.max_tools: the file was changed there since riglm read it")
    assert "max_tools:  12" in riglm.write({"filtering": {"mode": "shadow"}})
    assert "filtering.max_tools: the file was changed" in riglm.refuses(riglm.documents.shown(riglm.settings))
    assert "max_tools:  12" in riglm.write({"filtering": {"max_tools": 12, "min_tools": 2}})


def test_what_riglm_wrote_itself_can_be_changed_again(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path)
    riglm.write({"filtering": {"max_tools": 8, "clients": {"a": "full"}}})
    riglm.write({"filtering": {"max_tools": None, "clients": {"a": None}}})
    assert "max_tools: 7" in riglm.write({"filtering": {"max_tools": 7}})


def test_all_faults_of_a_file_are_told(tmp_path: Path) -> None:
    riglm = Riglm(tmp_path)
    riglm.file.write_text("filtering: {max_tols: 1, mode: x}\n", "utf-8")
    with pytest.raises(InvalidInputError) as refused:
        riglm.write({"filtering": {"max_tools": 8}})
    assert len(refused.value.faults) == 2


def test_the_file_of_the_working_directory_is_written_where_no_other_was_named(tmp_path: Path) -> None:
    file = tmp_path / "riglm.yaml"
    file.write_text("upstream: {url: 'http://h'}\n", "utf-8")
    configuration = load(Options(), environment={}, directory=tmp_path)
    documents = ConfigurationDocuments(configuration, {}, tmp_path)
    written = documents.write_temporary(configuration.settings, {"filtering": {"max_tools": 8}}, lambda _: True)
    assert written is not None
    written.take_over()
    assert file.read_text("utf-8") == "upstream: {url: 'http://h'}\nfiltering:\n  max_tools: 8\n"


def test_a_new_server_is_written_with_what_it_was_given_alone(tmp_path: Path) -> None:
    text = "mcpServers:\n  a: {command: sh}  # the first\n"
    riglm = Riglm(tmp_path, text)
    given = {"command": "npx", "args": ["-y", "x"], "env": {"KEY": "secret-value"}}
    expected = '  b:\n    command: [npx]\n    args: ["-y", x]\n    env:\n      KEY: secret-value\n'
    assert riglm.write({"mcpServers": {"b": given}}) == text + expected
    assert riglm.write({"mcpServers": {"b": None}}) == text


@pytest.mark.parametrize(
    ("clients", "expected"),
    [
        ('{"claude*": hints}   # for claude', "{cursor: dynamic}   # for claude"),
        ('# who gets what\n    "claude*": hints', "# who gets what\n    cursor: dynamic"),
    ],
)
def test_a_section_whose_only_entry_is_replaced_stays_where_it_is_with_its_comment(
    tmp_path: Path, clients: str, expected: str
) -> None:
    text = f"filtering:\n  clients: {clients}\n  max_tools: 9\nupstream: {{command: sh}}\n"
    changed = Riglm(tmp_path, text).write({"filtering": {"clients": {"claude*": None, "cursor": "dynamic"}}})
    assert changed == text.replace(clients, expected)


@pytest.mark.parametrize("change", [None, {"disabled": True}])
def test_a_file_in_which_no_server_would_be_in_use_is_not_written(tmp_path: Path, change: object) -> None:
    riglm = Riglm(tmp_path, "mcpServers:\n  a: {command: sh}\n  b: {command: sh}\n")
    assert "there would be no server" in riglm.refuses({"mcpServers": {"a": change, "b": change}})
    assert riglm.write({"mcpServers": {"a": change}})


def test_a_file_that_names_no_server_is_changed_like_any_other(tmp_path: Path) -> None:
    text = "filtering: {max_tools: 9}\n"
    assert Riglm(tmp_path, text).write({"filtering": {"max_tools": 8}}) == text.replace("9", "8")
