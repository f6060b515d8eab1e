"""The composition root: the one place that knows which adapter stands behind which port."""

from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.settings import Settings


def run_stdio(settings: Settings) -> int:
    """Serve one client on stdin and stdout until it leaves; the exit code."""
    raise ConfigurationError(f"forwarding is not built in yet ({len(settings.upstream_specs())} servers configured)")


def run_http(settings: Settings) -> int:
    """Serve clients over HTTP until a signal ends it; the exit code."""
    raise ConfigurationError(f"forwarding is not built in yet ({len(settings.upstream_specs())} servers configured)")
