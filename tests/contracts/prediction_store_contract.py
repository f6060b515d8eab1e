"""What every analytics store must keep for prediction; `AnalyticsContract` holds it."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pytest

from riglm.domain.invocation import OWN_UPSTREAM, ErrorKind
from riglm.domain.learning import WARM_SET_TTL_SECONDS, LearnedPair, SessionUse, Usage, WarmSetKey
from riglm.domain.policy import OverrideKind, OverrideScope
from riglm.domain.retention import DAY_SECONDS
from riglm.domain.session import PROFILE, ClientInfo, uuid7
from riglm.domain.tool import TTL_SECONDS as CATALOG_KEPT_SECONDS
from riglm.ports.analytics import (
    AnalyticsPort,
    LearnedPairsDeleted,
    OverridesPort,
    SettingChangesPort,
    ToolCatalogsPort,
    ToolPinsPort,
    WarmSetsPort,
)
from tests.records import a_learned_pair, a_session, a_tool_catalog, a_tool_pin, a_warm_set, an_invocation, an_override


def known_of(pair: LearnedPair) -> dict[str, object]:
    """Everything that is known of a learned pair."""
    return {
        name: value.tolist() if isinstance(value := getattr(pair, name), np.ndarray) else value
        for name in LearnedPair.__dataclass_fields__
    }


class Choices(OverridesPort, SettingChangesPort, WarmSetsPort, ToolCatalogsPort, ToolPinsPort, Protocol):
    """Overrides, changed settings, warm sets, tool catalogs and tool pins."""


class PredictionStoreContract:
    """Learned pairs, recent sessions, overrides, warm sets and tool catalogs."""

    @pytest.fixture
    def analytics(self) -> AnalyticsPort:
        """The store under test, open and empty."""
        raise NotImplementedError

    @pytest.fixture
    def choices(self, analytics: AnalyticsPort) -> Choices:
        """Another way to what people and epochs decided in the store, if there is one."""
        return analytics

    def test_a_new_store_has_nothing_for_prediction(self, analytics: AnalyticsPort) -> None:
        """No question needs records."""
        assert list(analytics.list_learned_pairs("minilm")) == []
        assert list(analytics.list_training_sessions()) == []
        assert list(analytics.list_overrides()) == []
        assert analytics.get_warm_set(WarmSetKey(principal="p", client="cursor")) is None
        assert list(analytics.list_session_uses()) == []
        assert list(analytics.prune_learned_pairs(0)) == []
        assert analytics.delete_override(uuid7()) is False

    def test_a_learned_pair_comes_back_as_it_was_stored(self, analytics: AnalyticsPort) -> None:
        """Every field is kept, and the vector exactly."""
        pair = a_learned_pair(
            scope="p" * 32,
            tool="github__lösche",
            vector=np.array([1 / 3, -2 / 3, 0.0], dtype=np.float32),
            confidence=1 / 7,
            uses=3,
            description_hash="d" * 32,
            terms=(2**63 - 1, -(2**63), 0),
        )
        analytics.record_many([pair])
        [stored] = analytics.list_learned_pairs("minilm")
        assert known_of(stored) == known_of(pair)
        assert stored.vector.dtype == np.float32

    def test_learned_pairs_are_given_newest_first_and_of_one_model(self, analytics: AnalyticsPort) -> None:
        """The most confident first among those of one time, up to the limit."""
        told = [("old", 1.0, 0.9), ("weak", 2.0, 0.1), ("sure", 2.0, 0.8), ("new", 3.0, 0.5)]
        analytics.record_many([a_learned_pair(tool=tool, updated_at=at, confidence=sure) for tool, at, sure in told])
        analytics.record_many([a_learned_pair(model="bge", tool="other")])
        assert [pair.tool for pair in analytics.list_learned_pairs("minilm")] == ["new", "sure", "weak", "old"]
        assert [pair.tool for pair in analytics.list_learned_pairs("minilm", 2)] == ["new", "sure"]
        assert [pair.tool for pair in analytics.list_learned_pairs("bge")] == ["other"]

    def test_of_a_learned_pair_the_one_updated_last_is_kept(self, analytics: AnalyticsPort) -> None:
        """In whatever order they come, in one batch or in several, and however often."""
        first = a_learned_pair(confidence=0.1, updated_at=1.0)
        second = replace(first, confidence=0.2, updated_at=2.0, uses=2)
        third = replace(first, confidence=0.3, updated_at=3.0, uses=3, description_hash="new")
        analytics.record_many([second, first])
        assert [pair.confidence for pair in analytics.list_learned_pairs("minilm")] == [0.2]
        analytics.record_many([third])
        analytics.record_many([first, second])
        [stored] = analytics.list_learned_pairs("minilm")
        assert known_of(stored) == known_of(third)

    def test_forgotten_pairs_are_gone_and_may_be_learned_again(self, analytics: AnalyticsPort) -> None:
        """What comes later in a batch counts; unknown pairs are nothing to forget."""
        gone, back, stays = (a_learned_pair(tool=tool) for tool in ("gone", "back", "stays"))
        analytics.record_many([gone, back, stays])
        analytics.record_many(
            [LearnedPairsDeleted(ids=(gone.id, back.id, uuid7())), replace(back, updated_at=1.0, confidence=0.01)]
        )
        found = {pair.tool: pair.confidence for pair in analytics.list_learned_pairs("minilm")}
        assert found == {"back": 0.01, "stays": 0.5}
        analytics.record_many([stays, LearnedPairsDeleted(ids=(stays.id,)), LearnedPairsDeleted(ids=())])
        assert [pair.tool for pair in analytics.list_learned_pairs("minilm")] == ["back"]

    def test_more_pairs_than_one_statement_takes_are_forgotten(self, analytics: AnalyticsPort) -> None:
        """A whole store may be forgotten at once."""
        pairs = [a_learned_pair() for _ in range(1500)]
        analytics.record_many(pairs)
        analytics.record_many([LearnedPairsDeleted(ids=tuple(pair.id for pair in pairs[1:]))])
        assert [pair.id for pair in analytics.list_learned_pairs("minilm")] == [pairs[0].id]

    def test_pruning_leaves_the_newest_pairs_of_all_models(self, analytics: AnalyticsPort) -> None:
        """A few at a time, and tells how many it took."""
        analytics.record_many([a_learned_pair(updated_at=float(at), model=f"m{at % 2}") for at in range(10)])
        assert list(analytics.prune_learned_pairs(20)) == []
        assert list(analytics.prune_learned_pairs(3, at_once=3)) == [3, 3, 1]
        assert [pair.updated_at for pair in analytics.list_learned_pairs("m1")] == [9.0, 7.0]
        assert [pair.updated_at for pair in analytics.list_learned_pairs("m0")] == [8.0]

    def test_a_stored_pair_does_not_change_with_the_one_given(self, analytics: AnalyticsPort) -> None:
        """Vectors are copied."""
        pair = a_learned_pair(vector=np.array([1, 0], dtype=np.float32))
        analytics.record_many([pair])
        pair.vector[0] = 5
        [stored] = analytics.list_learned_pairs("minilm")
        assert stored.vector.tolist() == [1, 0]

    def test_a_failed_call_is_told_and_trains_nothing(self, analytics: AnalyticsPort) -> None:
        """A session of failed calls alone takes no place, and failed calls count neither as use nor together."""
        session, failed = a_session(started_at=1.0), a_session(started_at=2.0)
        error = {"success": False, "error_kind": ErrorKind.TOOL}
        analytics.record_many([session, failed, an_invocation(session, "read"), an_invocation(session, "list")])
        for each in (session, failed):
            analytics.record_many([an_invocation(each, "write", **error), an_invocation(each, "read", **error)])
        [recent] = analytics.list_training_sessions(1)
        assert [(call.tool, call.success) for call in recent.calls] == [
            ("read", True),
            ("list", True),
            ("write", False),
            ("read", False),
        ]
        assert [call.tool for call in recent.successes] == ["read", "list"]
        assert [(each.tools, each.calls) for each in analytics.list_session_uses()] == [(("read", "list"), 2)]
        assert analytics.refresh_cooccurrences(1000.0) == 1

    def test_an_override_comes_back_as_it_was_stored_until_it_is_deleted(self, choices: Choices) -> None:
        """In the order in which they were made."""
        whole = an_override(
            kind=OverrideKind.EXCLUDE,
            tool="lösche",
            scope=OverrideScope.PRINCIPAL,
            key="p" * 32,
            created_at=900.0,
            expires_at=5000.0,
            reason="not \U0001f9c0",
        )
        plain = an_override()
        choices.put_override(plain)
        choices.put_override(whole)
        assert list(choices.list_overrides()) == [whole, plain]
        assert choices.delete_override(plain.id) is True
        assert choices.delete_override(plain.id) is False
        assert list(choices.list_overrides()) == [whole]

    def test_what_is_decided_about_oddly_named_tools_comes_back_as_it_was(
        self, analytics: AnalyticsPort, choices: Choices
    ) -> None:
        """NUL and lone surrogates in names, profiles and reasons."""
        made = an_override(tool="re\0ad\ud83d", scope=OverrideScope.SESSION, key="\0", reason="\x1a0000\udfff")
        choices.put_override(made)
        assert list(choices.list_overrides()) == [made]
        tools = ("\0", "\ud83d", "\x1a")
        warm = a_warm_set(*tools, client="\ud83d", profile="\0", strategy='["\udfff", {}]', predictor="\0")
        assert choices.put_warm_set(warm, None) == warm
        session = a_session(client=ClientInfo(name="\ud83d"), metadata={"profile": "\0"})
        analytics.record_many([session, *(an_invocation(session, tool) for tool in tools)])
        [use] = choices.list_session_uses()
        assert (use.tools, use.client, use.profile) == (tools, "\ud83d", "\0")

    def test_an_override_replaces_the_one_with_its_id(self, choices: Choices) -> None:
        """Putting twice is putting once."""
        first = an_override()
        second = replace(first, kind=OverrideKind.PIN)
        for each in (first, second, second):
            choices.put_override(each)
        assert list(choices.list_overrides()) == [second]

    def test_expired_overrides_go_when_another_one_is_made(self, choices: Choices) -> None:
        """So that their number does not grow for ever."""
        expired, valid = an_override(expires_at=1500.0), an_override(expires_at=1500.5)
        for each in (expired, valid):
            choices.put_override(each)
        new = an_override(created_at=1500.0)
        choices.put_override(new)
        assert list(choices.list_overrides()) == [valid, new]

    def test_changed_settings_come_back_with_the_latest_values_until_they_are_deleted(self, choices: Choices) -> None:
        """Any JSON value is kept, `null` as well, and no key changes another."""
        assert choices.list_setting_changes() == {}
        choices.put_setting_changes({"filtering.mode": "shadow", "filtering.profiles": {"a\ud800": {"pinned": ["ü"]}}})
        choices.put_setting_changes({"filtering.mode": None, "prices.output": 2.5})
        stored = {"filtering.mode": None, "filtering.profiles": {"a\ud800": {"pinned": ["ü"]}}, "prices.output": 2.5}
        assert choices.list_setting_changes() == stored
        choices.delete_setting_changes(["filtering.profiles", "filtering.mode", "filtering.unknown"])
        assert choices.list_setting_changes() == {"prices.output": 2.5}

    def test_a_warm_set_is_replaced_by_whoever_has_seen_it(self, choices: Choices) -> None:
        """A writer that has seen another one, or none, gets the stored one back."""
        first, second, third = (a_warm_set("read", created_at=at) for at in (1001.0, 1002.0, 1003.0))
        assert choices.put_warm_set(first, None) == first
        assert choices.put_warm_set(second, None) == first
        assert choices.put_warm_set(second, first.created_at) == second
        assert choices.put_warm_set(third, first.created_at) == second
        assert choices.get_warm_set(first.key) == second

    def test_a_warm_set_comes_back_with_its_whole_usage_and_what_made_it(self, choices: Choices) -> None:
        """Numbers are exact, whether it is the first one or replaces another."""
        for replaces, tool in ((None, "read"), (1001.0, "lösche")):
            usage = Usage(evidence=7, probabilities={tool: 1 / 3}, requests=4 / 3, distinct_tools=0.1)
            warm_set = a_warm_set(usage=usage, strategy=f'["{tool}", {{}}]', predictor=tool)
            assert choices.put_warm_set(warm_set, replaces) == warm_set
            assert choices.get_warm_set(warm_set.key) == warm_set

    def test_principals_clients_profiles_and_projects_have_warm_sets_of_their_own(self, choices: Choices) -> None:
        """One without tools is stored as well."""
        others = ({"principal": ""}, {"client": ""}, {"project": ""}, {"project": "r" * 32})
        sets = [a_warm_set("a"), *(a_warm_set("b", **other) for other in others), a_warm_set(profile="work")]
        assert [choices.put_warm_set(each, None) for each in sets] == sets
        assert [choices.get_warm_set(each.key) for each in sets] == sets

    def test_old_warm_sets_are_removed_when_another_one_is_stored(self, choices: Choices) -> None:
        """One that replaces such an old one is stored in its place."""
        old, other, young = (
            a_warm_set("a", created_at=0.0),
            a_warm_set(client="b", created_at=0.0),
            a_warm_set(client="c"),
        )
        for each in (old, other, young):
            choices.put_warm_set(each, None)
        new = replace(old, created_at=WARM_SET_TTL_SECONDS + 1.0)
        assert choices.put_warm_set(new, old.created_at) == new
        kept = [choices.get_warm_set(each.key) for each in (old, other, young)]
        assert kept == [new, None, young]

    def test_forgotten_warm_sets_can_be_stored_again(self, choices: Choices) -> None:
        """Even by a writer that has seen the forgotten one."""
        old, new = a_warm_set("a"), a_warm_set("b", "c", created_at=1002.0)
        choices.put_warm_set(old, None)
        choices.forget_warm_sets()
        assert choices.get_warm_set(new.key) is None
        assert choices.put_warm_set(new, old.created_at) == new

    def test_of_concurrent_writers_one_wins(self, choices: Choices) -> None:
        """All get the set of the winner, whether there was one before or not."""
        for replaces, at in ((None, 1.0), (1.0, 2.0)):
            sets = [a_warm_set(f"{number}", created_at=at) for number in range(12)]
            with ThreadPoolExecutor(4) as pool:
                agreed = list(pool.map(lambda given, seen=replaces: choices.put_warm_set(given, seen), sets))
            assert agreed.count(agreed[0]) == len(agreed)
            assert agreed[0] in sets

    def test_a_session_s_use_is_its_different_tools_in_order_and_its_calls(
        self, analytics: AnalyticsPort, choices: Choices
    ) -> None:
        """The order is that of the sequence numbers, in any order of arrival."""
        session = a_session(
            started_at=5.0,
            client=ClientInfo(name="cursor"),
            principal="m" * 32,
            project="r" * 32,
            metadata={"profile": "work"},
        )
        calls = [an_invocation(session, tool) for tool in ("write", "read", "write", "delete")]
        analytics.record_many([session, *reversed(calls)])
        assert list(choices.list_session_uses()) == [
            SessionUse(
                started_at=5.0,
                tools=("write", "read", "delete"),
                calls=4,
                client="cursor",
                principal="m" * 32,
                profile="work",
                project="r" * 32,
            )
        ]

    def test_failed_calls_and_calls_of_meta_tools_are_no_use(self, analytics: AnalyticsPort, choices: Choices) -> None:
        """A session of nothing else takes no place; an upstream tool with the name of a meta-tool counts."""
        used, failed, own = (a_session(started_at=at) for at in (1.0, 2.0, 3.0))
        for each, kind in ((used, ErrorKind.TOOL), (used, ErrorKind.TIMEOUT), (failed, ErrorKind.PROTOCOL)):
            analytics.record_many([each, an_invocation(each, "failed", success=False, error_kind=kind)])
        for each in (used, own):
            analytics.record_many([each, an_invocation(each, "search", upstream=OWN_UPSTREAM)])
        analytics.record_many([an_invocation(used, "call_tool"), an_invocation(used, "read")])
        [use] = choices.list_session_uses(limit=1)
        assert (use.started_at, use.tools, use.calls, use.profile) == (1.0, ("call_tool", "read"), 2, "default")

    @pytest.mark.parametrize("name", ["a_b", "a%", "!", 'a"b', "ä", "default", ""])
    def test_the_latest_sessions_of_a_profile_are_found_among_many_others(
        self, analytics: AnalyticsPort, choices: Choices, name: str
    ) -> None:
        """Each profile has its limit; sessions without a profile are in the default one."""
        others = [{PROFILE: "axb"}, {PROFILE: "a"}, {PROFILE: "x", "why": 'a "profile":"a_b"'}, {}]
        metadata = [{PROFILE: name}, {PROFILE: name, "why": "x"}, *others * 3]
        sessions = [a_session(started_at=float(at), metadata=each) for at, each in enumerate(metadata)]
        analytics.record_many([*sessions, *(an_invocation(each, "read") for each in sessions)])
        uses = choices.list_session_uses(limit=2, profile=name)
        assert [each.started_at for each in uses] == ([13.0, 9.0] if name == "default" else [1.0, 0.0])
        assert {each.profile for each in uses} == {name}

    def test_the_latest_sessions_of_a_principal_or_of_all_are_listed(
        self, analytics: AnalyticsPort, choices: Choices
    ) -> None:
        """Newest first, up to the limit, which counts the sessions of the principal alone."""
        mine, theirs = "m" * 32, ""
        sessions = [a_session(started_at=float(at), principal=who) for at, who in enumerate([mine, theirs] * 2)]
        unused = a_session(started_at=9.0, principal=mine)
        analytics.record_many([*sessions, unused, *(an_invocation(each, "read") for each in sessions)])

        def started(*given: Any) -> list[float]:
            return [each.started_at for each in choices.list_session_uses(*given)]

        assert started() == [3.0, 2.0, 1.0, 0.0]
        assert started(None, 3) == [3.0, 2.0, 1.0]
        assert started(mine) == [2.0, 0.0]
        assert started(mine, 1) == [2.0]
        assert started(theirs) == [3.0, 1.0]
        assert started("nobody") == []

    def test_a_tool_catalog_comes_back_as_it_was_stored(self, analytics: AnalyticsPort, choices: Choices) -> None:
        """Every byte is kept, for each variant, and no other server's catalog is returned."""
        odd = a_tool_catalog(server="\0\ud83d\x1a", instructions="\0\x1a", tools=b'[{"name":"\xc3\xa4", "n":1.0}]')
        modern, other = a_tool_catalog(variant="modern", capabilities=b""), a_tool_catalog(fingerprint="0" * 32)
        analytics.record_many([odd, modern, other])
        found = choices.list_tool_catalogs([odd.fingerprint, "1" * 32])
        assert sorted(found, key=lambda each: each.variant) == [odd, modern]
        assert choices.list_tool_catalogs([]) == []

    def test_the_newest_tool_catalog_stays_and_old_ones_go(self, analytics: AnalyticsPort, choices: Choices) -> None:
        """Records may arrive in any order. What no process has refreshed for long is removed."""
        old, new = a_tool_catalog(tools=b"[]"), a_tool_catalog(updated_at=2000.0)
        unused = a_tool_catalog(fingerprint="0" * 32)
        analytics.record_many([new, old, unused])
        analytics.record_many([old])
        assert list(choices.list_tool_catalogs([new.fingerprint])) == [new]
        latest = a_tool_catalog(updated_at=unused.updated_at + CATALOG_KEPT_SECONDS + 1.0)
        analytics.record_many([latest])
        assert list(choices.list_tool_catalogs([latest.fingerprint, unused.fingerprint])) == [latest]

    def test_a_row_stamped_in_the_future_is_replaced_and_removes_no_other(
        self, analytics: AnalyticsPort, choices: Choices
    ) -> None:
        """A clock was ahead and is right again."""
        now, ahead = time.time(), time.time() + 400 * DAY_SECONDS
        other = a_tool_catalog(variant="modern", updated_at=now)
        for catalog in (other, a_tool_catalog(updated_at=ahead, tools=b"[]"), right := a_tool_catalog(updated_at=now)):
            analytics.record_many([catalog])
        found = choices.list_tool_catalogs([right.fingerprint])
        assert sorted(found, key=lambda each: each.variant) == [right, other]
        changed = a_tool_pin(seen_at=now, seen_digest="b" * 64)
        for pin in (a_tool_pin(seen_at=ahead), changed):
            analytics.record_many([pin])
        assert list(choices.list_tool_pins()) == [changed]

    def test_a_tool_pin_comes_back_as_it_was_stored(self, analytics: AnalyticsPort, choices: Choices) -> None:
        """Every byte is kept, by server and name, and of the servers that are asked for only."""
        odd = a_tool_pin(name="\0\ud83d\x1a", definition=b'{"name":"\xc3\xa4", "n":1.0}', resembles="b/\ud83d")
        added = a_tool_pin(name="added", digest="", definition=b"")
        other = a_tool_pin(server="git")
        analytics.record_many([odd, added, other])
        assert list(choices.list_tool_pins(["files", "none"])) == [odd, added]
        assert list(choices.list_tool_pins()) == [odd, added, other]
        assert list(choices.list_tool_pins([])) == []

    def test_what_is_listed_later_changes_no_approved_definition(
        self, analytics: AnalyticsPort, choices: Choices
    ) -> None:
        """The newest definition that was seen counts, in any order of records; approved stays what was first."""
        first = a_tool_pin()
        seen = {"seen_digest": "c" * 64, "seen": b'{"title":"read"}', "seen_at": 2000.0}
        changed = replace(first, digest="c" * 64, definition=b'{"title":"read"}', **seen)
        analytics.record_many([first])
        analytics.record_many([changed])
        analytics.record_many([replace(first, seen_at=1500.0)])
        expected = replace(first, **seen)
        assert list(choices.list_tool_pins()) == [expected]

    def test_of_tool_pins_that_are_recorded_together_the_first_is_approved(
        self, analytics: AnalyticsPort, choices: Choices
    ) -> None:
        """Two processes may each have seen the tool for the first time while the store was unavailable."""
        first = a_tool_pin()
        seen = {"seen_digest": "c" * 64, "seen": b'{"title":"read"}', "seen_at": 2000.0}
        later = replace(first, digest="c" * 64, definition=b'{"title":"read"}', pinned_at=2000.0, **seen)
        analytics.record_many([later, first])
        assert list(choices.list_tool_pins()) == [replace(first, **seen)]

    def test_an_approved_tool_has_the_definition_that_was_listed(
        self, analytics: AnalyticsPort, choices: Choices
    ) -> None:
        """Approval is of a digest; one that was never seen has no definition until it is."""
        pin = a_tool_pin(seen_digest="c" * 64, seen=b'{"title":"read"}')
        analytics.record_many([pin])
        choices.approve_tools([replace(pin, digest="c" * 64)])
        approved = replace(pin, digest="c" * 64, definition=b'{"title":"read"}')
        assert list(choices.list_tool_pins()) == [approved]
        imported = a_tool_pin(name="write", digest="d" * 64, definition=b"", seen_digest="", seen=b"")
        choices.approve_tools([imported])
        assert list(choices.list_tool_pins()) == [approved, imported]
        seen = replace(imported, digest="", seen_digest="d" * 64, seen=b'{"name":"write"}', seen_at=2000.0)
        analytics.record_many([seen])
        found = replace(seen, digest="d" * 64, definition=b'{"name":"write"}')
        assert list(choices.list_tool_pins()) == [approved, found]
