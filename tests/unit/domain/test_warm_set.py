import pytest

from riglm.domain.warm_set import mostly_used

USE = {"a": 1.0, "b": 8.0, "c": 1.0, "gone": 90.0, "never": 0.0}
NAMES = ("never", "c", "b", "a", "new")


@pytest.mark.parametrize(
    ("share", "most", "chosen"),
    [(0.8, 9, ("b",)), (0.81, 9, ("b", "a")), (1.0, 9, ("b", "a", "c")), (1.0, 2, ("b", "a")), (0.5, 0, ())],
)
def test_as_few_tools_as_make_up_the_share_of_use_are_chosen_the_most_used_first(share, most, chosen):
    assert mostly_used(USE, NAMES, share, most) == chosen


def test_without_use_no_tool_is_chosen():
    assert mostly_used({}, NAMES, 0.9, 5) == ()
