"""The project of a directory is its version-control root."""

import os
from pathlib import Path

import pytest

from riglm.adapters.configuration.locations import project_root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory that may become a project, with a directory below it."""
    root = tmp_path.resolve() / "shop"
    (root / "src" / "deep").mkdir(parents=True)
    return root


def a_worktree(repository: Path, at: Path, *, is_relative: bool = False) -> Path:
    """Make what `git worktree add` makes."""
    own = repository / "worktrees" / at.name
    own.mkdir(parents=True)
    (own / "commondir").write_text("../..\n")
    at.mkdir(parents=True)
    target = Path(os.path.relpath(own, at)) if is_relative else own
    (at / ".git").write_text(f"gitdir: {target}\n")
    return at


@pytest.mark.parametrize("name", [".git", ".hg", ".jj", ".svn"])
@pytest.mark.parametrize("below", ["", "src", "src/deep", "gone/deep"])
def test_a_directory_belongs_to_the_nearest_root_above_even_if_it_is_gone(root: Path, name: str, below: str) -> None:
    (root / name).mkdir()
    (root.parent / ".git").mkdir()
    assert project_root(str(root / below)) == str(root)


@pytest.mark.parametrize("directory", ["shop", "shop/src", "gone", "shop\0"])
def test_a_directory_without_version_control_belongs_to_no_project(root: Path, directory: str) -> None:
    assert project_root(str(root.parent / directory)) == ""


def test_the_working_directory_may_be_a_link_or_deleted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / ".git").mkdir()
    (root.parent / "link").symlink_to(root / "src")
    monkeypatch.chdir(root.parent / "link")
    assert project_root(".") == str(root)
    gone = root / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert project_root(".") == ""


@pytest.mark.parametrize("is_relative", [False, True])
def test_all_worktrees_of_a_repository_are_one_project(root: Path, is_relative: bool) -> None:
    (root / ".git").mkdir()
    worktree = a_worktree(root / ".git", root.parent / "feature", is_relative=is_relative)
    assert project_root(str(worktree / "src")) == project_root(str(root)) == str(root)
    bare = root.parent / "bare.git"
    one, other = (a_worktree(bare, root.parent / name) for name in ("one", "other"))
    assert project_root(str(one)) == project_root(str(other)) == str(bare)


def test_a_submodule_and_its_worktrees_are_a_project_of_their_own(root: Path) -> None:
    repository = root / ".git" / "modules" / "part"
    repository.mkdir(parents=True)
    (root / "src" / ".git").write_text("gitdir: ../.git/modules/part\n")
    worktree = a_worktree(repository, root.parent / "part-feature")
    assert project_root(str(root / "src")) == project_root(str(worktree)) == str(repository)
    assert project_root(str(root)) == str(root)


@pytest.mark.parametrize("content", [b"", b"gitdir:", b"gitdir: /nowhere/x", b"no pointer", b"gitdir: \xff\0"])
def test_a_pointer_that_leads_nowhere_leaves_its_directory_as_the_root(root: Path, content: bytes) -> None:
    (root / ".git").write_bytes(content)
    assert project_root(str(root / "src")) == str(root)


def test_all_workspaces_of_a_jujutsu_repository_are_one_project(root: Path) -> None:
    (root / ".jj" / "repo").mkdir(parents=True)
    workspace = root.parent / "second"
    (workspace / ".jj").mkdir(parents=True)
    (workspace / ".jj" / "repo").write_text("../../shop/.jj/repo")
    assert project_root(str(workspace)) == project_root(str(root)) == str(root)
