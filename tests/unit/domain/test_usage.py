import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.usage import HALF_LIFE_SECONDS, MIN_EVIDENCE, SessionUse, UsageModel

NOW = 1_000 * 86_400.0
TOOLS = tuple("abcdef")


def make_use(*tools, age=0.0, calls=None, client=""):
    return SessionUse(started_at=NOW - age, tools=tools, calls=len(tools) if calls is None else calls, client=client)


def make_model(*scopes):
    return UsageModel(scopes, NOW)


uses = st.lists(
    st.builds(
        lambda tools, age: make_use(*tools, age=age),
        st.lists(st.sampled_from(TOOLS), unique=True),
        st.floats(-HALF_LIFE_SECONDS, 30 * HALF_LIFE_SECONDS),
    ),
    max_size=12,
)


@given(uses, uses, st.sets(st.sampled_from([*TOOLS, "never used"])))
def test_probabilities_are_between_0_and_1(wide, narrow, used):
    model = make_model([*wide, *narrow], narrow)
    for probabilities in (model.usage.probabilities, model.after(used)):
        assert all(0 < share <= 1 for share in probabilities.values())


@given(uses, st.sampled_from(TOOLS), st.floats(0, 30 * HALF_LIFE_SECONDS))
def test_one_more_session_with_a_tool_never_makes_it_less_likely(sessions, tool, age):
    before = make_model(sessions).usage.probabilities.get(tool, 0.0)
    after = make_model([*sessions, make_use(tool, age=age)]).usage.probabilities[tool]
    assert after >= before or after == pytest.approx(before)


@given(uses, st.lists(st.sampled_from(TOOLS), unique=True))
def test_the_tools_already_used_are_never_expected_again(sessions, used):
    probabilities = make_model(sessions).after(used)
    assert probabilities.keys() == make_model(sessions).usage.probabilities.keys() - set(used)


def test_without_sessions_nothing_is_expected():
    for model in (make_model(), make_model([]), make_model([], [])):
        usage = model.usage
        assert (usage.evidence, usage.probabilities, usage.requests, usage.distinct_tools) == (0, {}, 0.0, 0.0)
        assert model.after(["a"]) == {}


def test_a_tool_s_probability_is_its_smoothed_share_of_the_sessions():
    usage = make_model([make_use("a", "b"), make_use("a"), make_use("a", calls=7)]).usage
    assert usage.probabilities == pytest.approx({"a": 3 / 4 * 4 / 5, "b": 1 / 4 * 4 / 5})
    assert usage.evidence == 3
    assert usage.requests == pytest.approx(1 + (2 + 1 + 7) / 3)
    assert usage.distinct_tools == pytest.approx(4 / 3)


def test_a_session_of_the_half_life_counts_half():
    usage = make_model([make_use("old", age=HALF_LIFE_SECONDS), make_use("new"), make_use("new")]).usage
    assert usage.probabilities == pytest.approx({"old": 0.5 / 3.5 * 3 / 4, "new": 2 / 3.5 * 3 / 4})


def test_shares_count_in_full_only_where_all_tools_recur():
    assert make_model([make_use("a", "b")] * 4).usage.probabilities == pytest.approx({"a": 4 / 5, "b": 4 / 5})
    once = make_model([make_use(tool) for tool in "abcd"]).usage.probabilities
    assert once == pytest.approx(dict.fromkeys("abcd", 1 / 5 * 1 / 5))


def test_a_scope_with_too_few_sessions_has_no_influence():
    wide = [make_use("a")] * MIN_EVIDENCE
    few = [make_use("b")] * (MIN_EVIDENCE - 1)
    model = make_model(wide, few)
    assert model.usage == make_model(wide).usage
    assert model.usage.evidence == model.sessions == len(wide)


def test_too_few_sessions_are_no_evidence():
    few = [make_use("a")] * (MIN_EVIDENCE - 1)
    model = make_model(few, few)
    assert model.usage.evidence == 0
    assert model.sessions == len(few)


def test_a_narrow_scope_is_smoothed_towards_the_wide_one():
    narrow = [make_use("mine")] * MIN_EVIDENCE
    probabilities = make_model([*narrow, *[make_use("theirs")] * 9], narrow).usage.probabilities
    wide = make_model([*narrow, *[make_use("theirs")] * 9]).usage.probabilities
    assert probabilities["mine"] == pytest.approx((3 + wide["mine"]) / 4)
    assert probabilities["theirs"] == pytest.approx(wide["theirs"] / 4)


@given(st.randoms(use_true_random=False), st.integers(MIN_EVIDENCE, 9), st.integers(MIN_EVIDENCE, 9))
def test_each_client_gets_its_own_tools_first_in_whatever_order_sessions_come(shuffled, many, others):
    sessions = [make_use("a", "b", client="one")] * many + [make_use("c", "d", client="two")] * others
    shuffled.shuffle(sessions)
    for client, own in (("one", {"a", "b"}), ("two", {"c", "d"})):
        model = make_model(sessions, [each for each in sessions if each.client == client])
        probabilities = model.usage.probabilities
        assert set(sorted(probabilities, key=probabilities.__getitem__)[-2:]) == own


def test_tools_that_sessions_used_together_are_expected_after_one_of_them():
    sessions = [make_use("git", "diff")] * 5 + [make_use("page", "click")] * 10
    model = make_model(sessions)
    assert max(model.usage.probabilities, key=model.usage.probabilities.__getitem__) in {"page", "click"}
    after = model.after(["git"])
    assert after["diff"] > 0.8
    assert after["page"] < 0.2
    assert after["diff"] > model.usage.probabilities["diff"]


def test_a_rare_tool_says_more_than_one_that_all_sessions_use():
    sessions = [make_use("ls", "rare", "friend")] * 3 + [make_use("ls", "usual")] * 12
    after = make_model(sessions).after(["ls", "rare"])
    assert after["friend"] > after["usual"]


def test_a_tool_that_was_never_used_before_changes_little():
    sessions = [make_use("a", "b")] * 6 + [make_use("c")] * 4
    model = make_model(sessions)
    after = model.after(["never used"])
    assert sorted(after, key=after.__getitem__) == sorted(
        model.usage.probabilities, key=model.usage.probabilities.__getitem__
    )
