import errno
import os
import subprocess
from pathlib import Path

import pytest

from riglm.domain.errors import failed_write, shortage_in


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "no space is left on"), (errno.EDQUOT, "the quota is used")]
)
def test_a_full_disk_is_named_with_the_folder(tmp_path: Path, number: int, words: str) -> None:
    message = failed_write(tmp_path / "none" / "file", OSError(number, os.strerror(number)), "choose another")
    assert words in message
    assert message.endswith(f"the disk of {tmp_path} — fix: free space there")


def test_another_failure_keeps_its_fix(tmp_path: Path) -> None:
    error = PermissionError(errno.EACCES, "Permission denied")
    assert failed_write(tmp_path, error, "choose another") == (
        f"{tmp_path} cannot be written (Permission denied) — fix: choose another"
    )


def test_a_shortage_is_found_behind_other_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def wrapped(inner: BaseException) -> BaseException:
        outer = ValueError("it failed")
        outer.__cause__ = BaseExceptionGroup("several", [KeyError("else"), inner])
        return outer

    assert "`ulimit -u`" in shortage_in(wrapped(RuntimeError("can't start new thread")))
    monkeypatch.setattr(subprocess, "_fork_exec", refuse)
    with pytest.raises(BlockingIOError) as refused:
        subprocess.run(["true"], check=False, preexec_fn=lambda: None)  # it forks for this
    assert "`ulimit -u`" in shortage_in(refused.value)
    assert "free space" in shortage_in(wrapped(OSError(errno.ENOSPC, "full", "/tmp/it")))
    assert shortage_in(wrapped(BlockingIOError(errno.EAGAIN, "a pipe is full"))) == ""
    assert shortage_in(wrapped(RuntimeError("else"))) == ""
