"""What riglm does on the side never reaches a client when it fails."""

import logging

import pytest

from riglm.application.failing_open import FailingOpen


def test_each_kind_of_failure_is_said_once(caplog):
    guarded = FailingOpen(logging.getLogger("riglm.test"), "it failed;")
    for error in (KeyError("a"), KeyError("b"), ValueError("c"), KeyError("d")):
        with guarded:
            raise error
    assert [str(record.exc_info[1]) for record in caplog.records] == ["'a'", "c"]


def test_what_ends_the_process_passes():
    with pytest.raises(KeyboardInterrupt), FailingOpen(logging.getLogger("riglm.test"), ""):
        raise KeyboardInterrupt
