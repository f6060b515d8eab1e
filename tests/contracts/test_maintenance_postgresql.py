"""What looking after a PostgreSQL database does beside writers of other processes."""

import threading

import psycopg

from riglm.adapters.analytics import storing
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.domain.retention import ErasureRequest, ErasureScope
from tests.contracts.maintenance_contract import a_used_session, summed
from tests.waiting import WAIT_SECONDS, wait_until

SOON = WAIT_SECONDS


def wait_for_a_lock(url):
    """Until somebody waits for a lock in this database."""
    with psycopg.connect(url, autocommit=True) as connection:
        question = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'forgotten'::regclass"
        wait_until(lambda: connection.execute(question).fetchone()[0], "a session waits for the lock")


def test_nothing_slips_past_that_was_being_written_when_somebody_was_forgotten(postgres_url):
    session, records = a_used_session(1000.0, principal="p" * 32)
    whom = ErasureRequest(whose=ErasureScope.PRINCIPAL, key="p" * 32, at=2000.0)
    with SqlAnalytics(postgres_url, timeout=SOON) as writer, SqlAnalytics(postgres_url, timeout=SOON) as other:
        forgetting = threading.Thread(target=lambda: summed(other.erase(whom)))
        with writer._database.writing() as connection:
            storing.store(connection, records, str)
            forgetting.start()
            wait_for_a_lock(postgres_url)
        forgetting.join(SOON)
        assert not forgetting.is_alive()
        assert writer.list_sessions() == []
        assert writer.list_invocations(session.id) == []
