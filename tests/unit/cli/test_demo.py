"""`riglm demo` where the machine has too little."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from riglm.cli import demo
from riglm.demo import drive
from riglm.domain.errors import RiglmError


def test_too_few_processes_are_an_error_with_a_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def refused(*_: Any, **__: Any) -> Any:
        asyncio.get_running_loop().call_exception_handler({"message": "Future exception was never retrieved"})
        raise ExceptionGroup("in a task", [RuntimeError("can't start new thread")])

    monkeypatch.setattr(drive, "drive", refused)
    with pytest.raises(RiglmError, match=r"no further process or thread .* — fix: .*ulimit -u"):
        demo._play(drive.bundled_scene(), tmp_path, lambda _: None)
    assert not caplog.records
