import pytest

from riglm.domain.policy import Override, OverrideKind, OverrideScope
from riglm.domain.session import uuid7


def override(**known):
    return Override(id=uuid7(), kind=OverrideKind.PIN, tool="read", created_at=1.0, **known)


def test_an_override_holds_until_it_expires():
    assert override().holds(1e12)
    assert override(expires_at=10.0).holds(9.9)
    assert not override(expires_at=10.0).holds(10.0)


@pytest.mark.parametrize(
    ("scope", "key", "concerned"),
    [
        (OverrideScope.ALL, "", True),
        (OverrideScope.SESSION, "session", True),
        (OverrideScope.SESSION, "principal", False),
        (OverrideScope.SESSION, "", False),
        (OverrideScope.PRINCIPAL, "principal", True),
        (OverrideScope.PRINCIPAL, "session", False),
    ],
)
def test_an_override_concerns_those_in_its_scope(scope, key, concerned):
    assert override(scope=scope, key=key).concerns("session", "principal") is concerned


def test_callers_without_a_name_are_one_principal():
    assert override(scope=OverrideScope.PRINCIPAL, key="").concerns("session", "")
