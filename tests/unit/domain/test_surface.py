"""How a selection reaches which client."""

import pytest

from riglm.domain.exposure import Surface, surface_for
from riglm.domain.session import ProtocolEra


@pytest.mark.parametrize(
    ("client", "era", "surface"),
    [
        ("claude-code", ProtocolEra.MODERN, Surface.HINTS),
        ("claude-code", ProtocolEra.HANDSHAKE, Surface.HINTS),
        ("Claude-Code", ProtocolEra.MODERN, Surface.HINTS),
        ("codex", ProtocolEra.MODERN, Surface.STABLE),
        ("codex", ProtocolEra.HANDSHAKE, Surface.DYNAMIC),
        ("", ProtocolEra.HANDSHAKE, Surface.DYNAMIC),
    ],
)
def test_a_surface_goes_by_what_is_known_of_client_and_era(client, era, surface):
    assert surface_for(client, era, {}) is surface


def test_the_table_of_the_configuration_comes_first_and_takes_patterns():
    table = {"Claude*": Surface.FULL, "cod?x": Surface.STABLE}
    assert surface_for("claude-code", ProtocolEra.MODERN, table) is Surface.FULL
    assert surface_for("CODEX", ProtocolEra.HANDSHAKE, table) is Surface.STABLE
    assert surface_for("other", ProtocolEra.HANDSHAKE, table) is Surface.DYNAMIC
