"""What would have been shown in recorded sessions."""

from uuid import UUID

from riglm.adapters.prediction.usage_statistics import FrequencyPredictor
from riglm.application.prediction.prediction_settings import Strategy
from riglm.application.reports.session_replay import replay_history
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.list_plan import Prices
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.ports.analytics import TrainingCall, TrainingSession

TOOLS = tuple(f"files__tool{number}" for number in range(60))
WORKFLOW = TOOLS[30:33]


def a_session(number: int, *calls: str, available: tuple[str, ...] = TOOLS) -> TrainingSession:
    return TrainingSession(
        id=UUID(int=number),
        started_at=float(number),
        client="editor",
        client_id="c",
        principal="p",
        tools_available=available,
        calls=tuple(TrainingCall(tool, "files", DiscoveryMethod.LISTED, True, float(number)) for tool in calls),
    )


def walked(history, make=FrequencyPredictor, **options):
    strategy = Strategy(name="scripted", key="scripted", make=make)
    return replay_history(history, strategy, FilteringSettings(), Prices(), {}, **options)


def by_session(calls):
    found = {}
    for call in calls:
        found.setdefault(call.session.int, []).append((call.tool, call.fresh, call.is_hit, call.shown, call.available))
    return found


def a_history(sessions=60):
    return [a_session(number, *WORKFLOW) for number in range(sessions)]


def test_lists_depend_on_earlier_sessions_only():
    history = [a_session(number, *WORKFLOW[: 1 + number % 3], TOOLS[number]) for number in range(40)]
    part, whole = walked(history[:25]), walked(history)
    assert by_session(part.calls) == {number: calls for number, calls in by_session(whole.calls).items() if number < 25}
    assert part.costs == whole.costs[:25]


def test_a_workflow_that_repeats_ends_up_in_short_lists_that_pay():
    found = walked(a_history()).figures()
    assert found["calls"] == found["new_calls"] == 180
    assert found["hit_rate"] == found["new_hit_rate"] > 95
    assert found["mean_list"] <= 5
    assert found["reduction"] > 90
    assert found["price"] < found["price_of_search"] < 1
    assert found["requests"] < 5


def test_a_tool_that_nothing_speaks_for_is_missed_until_it_was_used():
    history = [*a_history(30), *(a_session(number, TOOLS[50]) for number in range(30, 60))]
    hits = {number: [hit for _, _, hit, _, _ in calls] for number, calls in by_session(walked(history).calls).items()}
    assert hits[29] == [True] * 3
    assert (hits[30], hits[59]) == ([False], [True])


def test_a_session_of_which_no_list_is_known_is_learned_from_and_not_judged():
    unlisted = [a_session(number, *WORKFLOW, TOOLS[number], available=()) for number in range(30)]
    history = [*unlisted, a_session(30, *WORKFLOW)]
    found = walked(history)
    assert (found.figures()["sessions"], found.figures()["calls"], len(found.costs)) == (1, 3, 1)
    assert all(call.is_hit for call in found.calls)
    assert not all(call.is_hit for call in walked(history[-1:]).calls)


def _fields(session):
    return {name: getattr(session, name) for name in TrainingSession.__dataclass_fields__}


def test_principals_learn_apart_where_they_are_told_to():
    ann = [TrainingSession(**{**_fields(session), "principal": "ann"}) for session in a_history(12)]
    ben = TrainingSession(**{**_fields(a_session(99, *WORKFLOW)), "principal": "ben"})
    together, apart = (walked([*ann, ben], by_principal=apart).calls[-3:] for apart in (False, True))
    assert [call.is_hit for call in together] == [True] * 3
    assert not all(call.is_hit for call in apart)
