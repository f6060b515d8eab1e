"""One after the other, in turn."""

import threading

from riglm.adapters.embedding.frames import Turns


def test_who_waits_comes_before_who_was_just_there() -> None:
    turns, order, waiting = Turns(), [], threading.Event()

    def other() -> None:
        waiting.set()
        with turns:
            order.append("other")

    thread = threading.Thread(target=other)
    with turns:
        thread.start()
        assert waiting.wait(10)
        while not turns._next.locked():
            pass
    with turns:
        order.append("again")
    thread.join(10)
    assert order == ["other", "again"]
