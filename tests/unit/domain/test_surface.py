"""How a selection reaches which client."""

import pytest

from riglm.domain.exposure import Surface, surface_for
from riglm.domain.session import Era


@pytest.mark.parametrize(
    ("client", "era", "surface"),
    [
        ("claude-code", Era.MODERN, Surface.HINTS),
        ("claude-code", Era.HANDSHAKE, Surface.HINTS),
        ("Claude-Code", Era.MODERN, Surface.HINTS),
        ("codex", Era.MODERN, Surface.STABLE),
        ("codex", Era.HANDSHAKE, Surface.DYNAMIC),
        ("", Era.HANDSHAKE, Surface.DYNAMIC),
    ],
)
def test_a_surface_goes_by_what_is_known_of_client_and_era(client, era, surface):
    assert surface_for(client, era, {}) is surface


def test_the_table_of_the_configuration_comes_first_and_takes_patterns():
    table = {"Claude*": Surface.FULL, "cod?x": Surface.STABLE}
    assert surface_for("claude-code", Era.MODERN, table) is Surface.FULL
    assert surface_for("CODEX", Era.HANDSHAKE, table) is Surface.STABLE
    assert surface_for("other", Era.HANDSHAKE, table) is Surface.DYNAMIC
