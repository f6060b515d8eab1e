"""The record of a call that an adapter runs."""

import asyncio
import contextlib

from riglm import ToolSelector
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.defer import record_call


def test_calls_that_end_are_recorded_and_those_that_are_put_off_or_cancelled_are_not(tmp_path):
    store = tmp_path / "calls.db"
    with ToolSelector([{"name": "read"}, {"name": "write"}], store=store, embedder="static") as selector:
        session = selector.session()
        for error in (LookupError, asyncio.CancelledError, ValueError):
            with contextlib.suppress(error), record_call(session, "read", passing=(LookupError,)):
                raise error
        with record_call(session, "write"):
            pass
        with record_call(session, "write") as call:
            call.failed = None
    with SqlAnalytics(f"sqlite:///{store}") as analytics:
        [session] = analytics.list_sessions()
        calls = [(call.tool, call.success) for call in analytics.list_invocations(session.session.id)]
    assert calls == [("read", False), ("write", True)]
