"""The key file: made once, kept to its owner, agreed on by all."""

import os
import stat
import subprocess

import pytest

from riglm.adapters import private_files
from riglm.adapters.private_files import load_or_create_key
from riglm.domain.errors import ConfigurationError
from tests.preloaded import script_command

LOADER = """
import sys
from pathlib import Path
from riglm.adapters.private_files import load_or_create_key
print("ready", flush=True)
sys.stdin.readline()
print(load_or_create_key(Path(sys.argv[1])).hex())
"""


def test_a_new_key_is_random_and_readable_by_its_owner_alone(tmp_path):
    one, other = tmp_path / "state" / "key", tmp_path / "other"
    assert len(load_or_create_key(one)) == 32
    assert load_or_create_key(one) != load_or_create_key(other)
    assert stat.S_IMODE(one.stat().st_mode) == 0o600
    assert stat.S_IMODE(one.parent.stat().st_mode) == 0o700


def test_the_key_stays_the_same_and_no_draft_is_left(tmp_path):
    file = tmp_path / "key"
    assert load_or_create_key(file) == load_or_create_key(file) == file.read_bytes()
    assert list(tmp_path.iterdir()) == [file]


def test_processes_that_start_at_once_agree_on_the_key(tmp_path):
    file = tmp_path / "key"
    starters = [
        subprocess.Popen(script_command(LOADER, str(file)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for each in starters:
        assert each.stdout.readline() == "ready\n"
    for each in starters:
        each.stdin.write("go\n")
        each.stdin.flush()
    keys = {each.communicate(timeout=30)[0].strip() for each in starters}
    assert keys == {file.read_bytes().hex()}
    assert list(tmp_path.iterdir()) == [file]


def test_one_who_comes_second_takes_the_key_of_the_first(tmp_path, monkeypatch):
    file = tmp_path / "key"
    link = os.link

    def overtaken(draft, path):
        file.write_bytes(b"k" * 32)
        link(draft, path)

    monkeypatch.setattr(private_files.os, "link", overtaken)
    assert load_or_create_key(file) == b"k" * 32
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("content", [b"", b"short", b"k" * 33])
def test_a_file_that_holds_no_key_is_named_and_left_alone(tmp_path, content):
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"key has {len(content)} bytes, not 32: .*remove it"):
        load_or_create_key(file)
    assert file.read_bytes() == content


def test_a_key_that_cannot_be_read_is_named_with_the_fix(tmp_path):
    with pytest.raises(ConfigurationError, match=rf"{tmp_path}.*directory.*readable") as raised:
        load_or_create_key(tmp_path)
    assert isinstance(raised.value.__cause__, OSError)


def test_a_key_that_cannot_be_made_is_named_with_the_fix(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be read or made"):
        load_or_create_key(tmp_path / "file" / "key")


def test_a_key_that_another_user_put_into_an_open_directory_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "key"
    load_or_create_key(file)
    other = os.stat_result((*file.lstat()[:4], os.geteuid() + 1, *file.lstat()[5:]))
    monkeypatch.setattr(type(file), "lstat", lambda _: other)
    with pytest.raises(ConfigurationError, match="belongs to another user"):
        load_or_create_key(file)
