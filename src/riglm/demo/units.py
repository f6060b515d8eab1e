"""A small real MCP server: units of measure. `python -m riglm.demo.units` serves on stdio."""

from mcp.server import MCPServer

server = MCPServer("units", version="1.0", log_level="ERROR")
_METRES = {"mm": 0.001, "cm": 0.01, "m": 1.0, "km": 1000.0, "in": 0.0254, "ft": 0.3048, "mi": 1609.344}


@server.tool()
def convert_length(value: float, unit: str, to: str) -> float:
    """Convert a length between mm, cm, m, km, in, ft and mi."""
    return value * _METRES[unit] / _METRES[to]


@server.tool()
def celsius_to_fahrenheit(degrees: float) -> float:
    """Convert a temperature."""
    return degrees * 9 / 5 + 32


@server.tool()
def known_units() -> list[str]:
    """The units of length that convert_length takes."""
    return list(_METRES)


if __name__ == "__main__":
    server.run()
