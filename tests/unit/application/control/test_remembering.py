"""Who asks the same at about the same time is given the same answer."""

import asyncio

import pytest

from riglm.application.control.thread_bridge import SHARE, AnswerCache
from riglm.domain.control import ControlUnavailableError
from tests.unit.application.control.office import BRIEFLY
from tests.unit.application.fakes import Clock


class Asked:
    """A question that counts how often it was asked, and answers when it may."""

    def __init__(self, clock):
        self.clock = clock
        self.times = 0
        self.takes = 0.0
        self.error = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self):
        self.times += 1
        number = self.times
        await self.may_answer.wait()
        self.clock.now += self.takes
        if self.error is not None:
            raise self.error
        return number, self.takes


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def remembering(clock):
    return AnswerCache(kept=2.0, timeout_seconds=BRIEFLY, monotonic=clock)


@pytest.fixture
def asked(clock):
    return Asked(clock)


async def test_an_answer_is_given_again_for_a_moment(remembering, asked, clock):
    assert [await remembering.ask("a", asked) for _ in range(3)] == [1, 1, 1]
    clock.now += 1.9
    assert await remembering.ask("a", asked) == 1
    clock.now += 0.2
    assert await remembering.ask("a", asked) == 2


async def test_all_who_ask_at_the_same_time_wait_for_one_answer(remembering, asked):
    assert await asyncio.gather(*(remembering.ask("a", asked) for _ in range(5))) == [1] * 5


async def test_other_questions_have_answers_of_their_own(remembering, asked):
    assert await remembering.ask("a", asked) == 1
    assert await remembering.ask("b", asked) == 2


async def test_what_is_much_work_is_kept_so_long_that_it_costs_its_share(remembering, asked, clock):
    asked.takes = SHARE * 10.0
    assert await remembering.ask("a", asked) == 1
    clock.now += 9.9
    assert await remembering.ask("a", asked) == 1
    clock.now += 0.2
    assert await remembering.ask("a", asked) == 2


async def test_questions_share_what_looking_may_cost_and_none_waits_for_ever(remembering, clock):
    questions = {name: Asked(clock) for name in "abcd"}
    for each in questions.values():
        each.takes = 0.1
    began = clock.now
    while clock.now < began + 300.0:
        for name, question in questions.items():
            await remembering.ask(name, question)
        clock.now += 2.0
    times = [each.times for each in questions.values()]
    assert sum(times) * 0.1 <= SHARE * (clock.now - began) + 4 * 0.1
    assert max(times) - min(times) <= 1 < min(times)


async def test_what_nobody_asks_any_more_lets_the_others_be_fresh_again(remembering, asked, clock):
    slow = Asked(clock)
    slow.takes = 10.0
    await remembering.ask("slow", slow)
    assert await remembering.ask("quick", asked) == 1
    for _ in range(31):
        clock.now += 2.0
        await remembering.ask("quick", asked)
    seen = asked.times
    clock.now += 2.1
    assert await remembering.ask("quick", asked) > seen


async def test_an_error_is_told_to_all_and_not_remembered(remembering, asked):
    asked.error = ControlUnavailableError("away")
    told = await asyncio.gather(*(remembering.ask("a", asked) for _ in range(2)), return_exceptions=True)
    assert told == [asked.error] * 2
    asked.error = None
    assert await remembering.ask("a", asked) == 2


async def test_what_takes_too_long_is_there_for_whoever_asks_later(remembering, asked):
    asked.may_answer.clear()
    with pytest.raises(ControlUnavailableError, match="ask again"):
        await remembering.ask("a", asked)
    asked.may_answer.set()
    await asyncio.sleep(0)
    while (found := await remembering.ask("a", asked)) is None:
        await asyncio.sleep(0)
    assert (found, asked.times) == (1, 1)


async def test_while_a_new_answer_takes_too_long_the_old_one_is_given(remembering, asked, clock):
    assert await remembering.ask("a", asked) == 1
    clock.now += 3.0
    asked.may_answer.clear()
    assert await remembering.ask("a", asked) == 1
    asked.may_answer.set()
    assert await remembering.ask("a", asked) == 2


async def test_only_so_many_answers_are_kept(remembering, asked):
    for number in range(200):
        await remembering.ask(number, asked)
    assert len(remembering._kept) <= 64
