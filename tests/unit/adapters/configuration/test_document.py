from pathlib import Path

import pytest

from riglm.adapters.configuration.loading import read_document as read
from riglm.domain.errors import ConfigurationError


def written(directory: Path, name: str, text: str | bytes) -> Path:
    file = directory / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def refusal(file: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(file)
    return str(caught.value)


def test_yaml_and_json_with_comments_hold_the_same_values(tmp_path: Path) -> None:
    yaml = written(tmp_path, "a.yaml", "a: [1, two]\nb: {c: d}\n")
    json = written(
        tmp_path, "a.json", '\ufeff// first\n{ /* a\n block */ "a": [1, "two", ], // tail\n "b": {"c": "d",},\n}\n'
    )
    assert read(yaml)[0] == read(json)[0] == {"a": [1, "two"], "b": {"c": "d"}}


def test_a_key_that_stands_twice_is_named_with_its_line(tmp_path: Path) -> None:
    _, yaml = read(written(tmp_path, "a.yaml", "a: 1\nb:\n  c: 1\n  c: 2\na: 3\n"))
    _, json = read(
        written(tmp_path, "a.json", '{"a": 1,\n // note\n"b": {"c": 1,\n"c": 2},\n"a": [{"c": 3}, {"c": 4}]}')
    )
    for problems, lines in ((yaml, ("line 4", "line 5")), (json, ("", ""))):
        assert sorted(problem.path for problem in problems) == sorted(lines)
        assert {problem.what for problem in problems} == {
            "the key `a` occurs twice in one place",
            "the key `c` occurs twice in one place",
        }


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "a: [1", "line 1, column 6: this is not YAML"),
        ("a.yaml", "a: b: c", "line 1, column 5: this is not YAML"),
        ("a.yaml", "a: \x07", "this is not YAML (ReaderError)"),
        ("a.yaml", "a: 2026-99-99", "this is not YAML (ValueError)"),
        ("a.yaml", "[" * 2000, "this is not YAML (RecursionError)"),
        ("a.yaml", "? [a, b]\n: c", "this is not YAML"),
        ("a.yaml", "- a", "the file does not hold keys with values"),
        ("a.yaml", "!!python/object/apply:os.system [id]", "this is not YAML"),
        ("a.json", '{"a": }', "line 1, column 7: this is not JSON"),
        ("a.json", "[" * 100_000, "this is not JSON that riglm reads (RecursionError)"),
        ("a.json", f'{{"a": {"9" * 5_000}}}', "this is not JSON that riglm reads (ValueError)"),
        ("a.json", "[1]", "the file does not hold keys with values"),
        ("a.yaml", b"a: \xff", "byte 3: the file is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_place_and_fix(
    tmp_path: Path, name: str, text: str | bytes, words: str
) -> None:
    message = refusal(written(tmp_path, name, text))
    assert message.startswith(str(tmp_path / name))
    assert words in message
    assert " — fix: " in message


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    assert "there is no such file" in refusal(tmp_path / "no.yaml")
    assert "cannot be read" in refusal(tmp_path)


def test_an_unreadable_text_is_not_quoted(tmp_path: Path) -> None:
    assert "canary" not in refusal(written(tmp_path, "a.yaml", "token: 'canary\nb: c"))
    assert "canary" not in refusal(written(tmp_path, "a.json", '{"token": "canary" "b"}'))
