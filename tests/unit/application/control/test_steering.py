"""Overrides that people make: checked, stored, and in force when the answer is given."""

import pytest

from riglm.application.control.overrides import OverrideService
from riglm.application.filtering.active_rules import Overrides
from riglm.application.worker import Worker
from riglm.domain.control import (
    ConflictError,
    ControlUnavailableError,
    InvalidInputError,
    NotFoundError,
    OverrideRequest,
)
from riglm.domain.policy import OverrideKind, OverrideScope
from riglm.domain.session import uuid7
from tests.records import a_session, an_invocation, an_override
from tests.stores.memory import InMemoryAnalytics
from tests.unit.application.control.office import BRIEFLY, an_office, settled


class Desk:
    """Steering over an archive, and what is in force."""

    def __init__(self, office, worker):
        self.office = office
        self.archive = office.archive
        self.now = 1000.0
        self.overrides = Overrides(worker, lambda: self.archive, clock=lambda: self.now)
        self.told = 0
        self.overrides.when_changed(self._notify)
        self.live = {}
        self.is_filtering = True
        self.steering = OverrideService(
            office.proxy,
            office.store,
            office.registry,
            self.overrides,
            lambda: self.live,
            is_filtering=lambda: self.is_filtering,
            clock=lambda: self.now,
        )

    @property
    def in_force(self):
        return [each.tool for each in self.overrides.in_force()]

    async def put(self, tool="read", kind=OverrideKind.PIN, **override_request):
        return await self.steering.put(OverrideRequest(kind=kind, tool=tool, **override_request))

    async def refused(self, **override_request):
        """The paths of what is wrong with a wish; nothing is stored of it."""
        with pytest.raises(InvalidInputError) as refused:
            await self.put(**override_request)
        assert list(InMemoryAnalytics.list_overrides(self.archive)) == []
        return [fault.path for fault in refused.value.faults]

    def _notify(self):
        self.told += 1


@pytest.fixture
async def desk():
    with an_office() as office, Worker() as worker:
        yield Desk(office, worker)


async def test_an_override_is_in_force_and_told_when_it_is_made(desk):
    made = await desk.put("read", OverrideKind.EXCLUDE, reason="broken", expires_in=60.0)
    assert (made.tool, made.kind, made.scope, made.key) == ("read", OverrideKind.EXCLUDE, OverrideScope.ALL, "")
    assert (made.created_at, made.expires_at, made.reason) == (1000.0, 1060.0, "broken")
    assert (desk.in_force, desk.told) == (["read"], 1)
    await desk.steering.delete(made.id)
    assert (desk.in_force, desk.told) == ([], 2)


async def test_the_earlier_of_two_ends_counts(desk):
    assert (await desk.put(expires_at=1030.0, expires_in=60.0)).expires_at == 1030.0
    assert (await desk.put(expires_at=1090.0, expires_in=60.0)).expires_at == 1060.0
    assert (await desk.put()).expires_at is None


@pytest.mark.parametrize(
    ("override_request", "path"),
    [
        ({"tool": ""}, "tool"),
        ({"tool": "x" * 257}, "tool"),
        ({"tool": "a\x00b"}, "tool"),
        ({"key": "k" * 257, "scope": OverrideScope.PRINCIPAL}, "key"),
        ({"reason": "r" * 501}, "reason"),
        ({"expires_at": float("inf")}, "expires_at"),
        ({"expires_at": 1e300}, "expires_at"),
        ({"expires_in": float("nan")}, "expires_in"),
        ({"expires_in": -1.0}, "expires_in"),
    ],
)
async def test_what_is_not_usable_is_refused_with_its_place(desk, override_request, path):
    assert await desk.refused(**override_request) == [path]


async def test_a_tool_that_no_server_is_known_to_have_is_refused_once_tools_are_known(desk):
    await desk.put("before_any_list")
    desk.live = {"read": "files"}
    await desk.put("read")
    session = a_session()
    desk.archive.record_many([session, an_invocation(session, tool="gone")])
    await desk.put("gone")
    with pytest.raises(NotFoundError, match="no server has a tool 'raed' — fix: use a name from GET /tools"):
        await desk.put("raed")


async def test_all_that_is_wrong_is_told_at_once(desk):
    assert await desk.refused(tool="", expires_in=-1.0) == ["tool", "expires_in"]


async def test_an_override_that_is_over_or_for_all_and_somebody_is_refused(desk):
    with pytest.raises(ConflictError, match="expires_at lies in the past"):
        await desk.put(expires_at=1000.0)
    with pytest.raises(ConflictError, match="expires_in is too short"):
        await desk.put(expires_in=1e-15)
    with pytest.raises(ConflictError, match="has no key"):
        await desk.put(key="somebody")
    assert desk.in_force == []


@pytest.mark.parametrize("kind", OverrideKind)
async def test_an_override_of_riglms_own_tools_is_refused_with_the_fix(desk, kind):
    with pytest.raises(ConflictError, match=r"set filtering\.meta_tools\.call_tool"):
        await desk.put("call_tool", kind)
    assert desk.in_force == []


async def test_a_servers_tool_of_such_a_name_can_be_steered(desk):
    desk.live = {"call_tool": "phone"}
    await desk.put("call_tool", OverrideKind.EXCLUDE)
    assert desk.in_force == ["call_tool"]


async def test_a_session_that_is_steered_must_be_known(desk):
    here, recorded = desk.office.visitor(), a_session()
    desk.archive.record_many([recorded])
    for session in (here, recorded):
        made = await desk.put(scope=OverrideScope.SESSION, key=str(session.id).upper())
        assert made.key == str(session.id)
    for key in (str(uuid7()), "", "not an id"):
        with pytest.raises(NotFoundError, match="there is no session"):
            await desk.put(scope=OverrideScope.SESSION, key=key)


async def test_of_principals_the_nameless_one_can_be_steered_too(desk):
    assert (await desk.put(scope=OverrideScope.PRINCIPAL)).key == ""
    assert (await desk.put(scope=OverrideScope.PRINCIPAL, key="a" * 32)).key == "a" * 32


async def test_overrides_are_listed_the_latest_first_without_those_that_are_over(desk):
    made = []
    for number in range(5):
        desk.now = 1000.0 + number
        made.append((await desk.put(f"tool{number}", expires_in=10.0 if number == 2 else None)).id)
    desk.now = 1013.0
    expected = [made[4], made[3], made[1], made[0]]
    found, cursor = [], None
    for _ in range(2):
        page = await desk.steering.entries(limit=2, cursor=cursor)
        found += [each.id for each in page.items]
        cursor = page.next_cursor
    assert (found, cursor) == (expected, None)
    assert (await desk.steering.one(made[0])).tool == "tool0"
    for gone in (made[2], uuid7()):
        with pytest.raises(NotFoundError):
            await desk.steering.one(gone)
        with pytest.raises(NotFoundError):
            await desk.steering.delete(gone)


async def test_while_the_store_is_away_nothing_is_half_done(desk):
    kept = await desk.put("kept")
    desk.archive.away = True
    with pytest.raises(ControlUnavailableError, match="the archive is shut"):
        await desk.put("lost")
    with pytest.raises(ControlUnavailableError):
        await desk.steering.delete(kept.id)
    assert desk.in_force == ["kept"]
    desk.archive.away = False
    assert [each.tool for each in (await desk.steering.entries(limit=10, cursor=None)).items] == ["kept"]


async def test_an_override_that_the_store_takes_too_late_is_taken_back():
    with an_office(timeout_seconds=BRIEFLY) as office, Worker() as worker:
        desk = Desk(office, worker)
        office.archive.gate.clear()
        with pytest.raises(ControlUnavailableError, match="in time"):
            await desk.put("late")
        office.archive.gate.set()
        await settled(office.store)
        await desk.overrides.refresh()
        assert desk.in_force == []


async def test_the_memory_of_an_override_that_others_made_is_listed_too(desk):
    desk.archive.put_override(an_override(tool="elsewhere", created_at=999.0))
    assert [each.tool for each in (await desk.steering.entries(limit=10, cursor=None)).items] == ["elsewhere"]


async def test_an_override_that_would_not_apply_since_filtering_is_off_is_refused(desk):
    desk.is_filtering = False
    with pytest.raises(ConflictError, match="filtering is off, so no override applies"):
        await desk.put()
    assert list(InMemoryAnalytics.list_overrides(desk.archive)) == []
