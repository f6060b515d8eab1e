import sqlite3
import subprocess

from riglm.adapters.analytics.sql import SqlAnalytics
from tests.contracts.analytics_contract import a_session
from tests.preloaded import script_command

OTHER_PROCESS = """
import sys
from riglm.adapters.analytics.sql import SqlAnalytics
from tests.contracts.analytics_contract import a_session
with SqlAnalytics(sys.argv[1]) as store:
    store.record_many([a_session()])
"""


def test_a_second_opening_in_one_process_leaves_the_first_one_s_locks_in_place(tmp_path):
    url = f"sqlite:///{tmp_path}/riglm.db"
    with SqlAnalytics(url) as store:
        store.record_many([a_session()])
        for _ in range(3):
            with SqlAnalytics(url) as second:
                second.refresh_cooccurrences(1.0)
            subprocess.run(script_command(OTHER_PROCESS, url), check=True, timeout=60)
            store.record_many([a_session()])
            assert (tmp_path / "riglm.db-wal").exists()
    connection = sqlite3.connect(tmp_path / "riglm.db")
    try:
        assert connection.execute("select count(*) from session").fetchone() == (7,)
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()
