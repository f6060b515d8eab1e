"""How the knowledge store asks its database."""

import threading
from pathlib import Path

from sqlalchemy import event
from sqlalchemy.engine import Engine

from riglm.adapters.analytics.knowledge import SqlKnowledge
from riglm.domain.knowledge import Table
from tests.contracts.knowledge_contract import MINE, a_thought, an_embedding
from tests.waiting import WAIT_SECONDS


def test_while_one_question_reads_its_snippets_another_is_answered(tmp_path: Path):
    answered = threading.Event()
    asking: list[threading.Thread] = []

    def ask_meanwhile(connection: object, cursor: object, statement: str, *rest: object) -> None:
        if "thought.text" in statement and not asking:
            asking.append(threading.Thread(target=ask_another, daemon=True))
            asking[0].start()
            was_answered.append(answered.wait(WAIT_SECONDS))

    def ask_another() -> None:
        store.nearest(Table.THOUGHTS, an_embedding(0, 1), MINE, 5)
        answered.set()

    was_answered: list[bool] = []
    with SqlKnowledge(f"sqlite:///{tmp_path / 'knowledge.db'}") as store:
        store.add_thoughts([a_thought("one", 1, 0)])
        event.listen(Engine, "before_cursor_execute", ask_meanwhile)
        try:
            store.nearest(Table.THOUGHTS, an_embedding(1, 0), MINE, 5)
        finally:
            event.remove(Engine, "before_cursor_execute", ask_meanwhile)
        asking[0].join(WAIT_SECONDS)
    assert was_answered == [True]
