"""The way in, before any command looks after what happens."""

import gc
import sys

import pytest

from riglm.cli import entry, main


def test_an_interrupt_while_modules_are_loaded_is_no_failure(monkeypatch: pytest.MonkeyPatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["riglm", "top"])
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    monkeypatch.setattr(main, "main", interrupted)
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 130
