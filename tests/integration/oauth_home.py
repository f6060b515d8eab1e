"""A home in which riglm runs in front of two servers, one of which asks for a sign-in."""

import contextlib
import json
import os
import subprocess
from contextlib import asynccontextmanager

import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client

from tests.preloaded import riglm_command
from tests.waiting import WAIT_SECONDS

SECONDS = WAIT_SECONDS


class Home:
    """A directory with a configuration, in which riglm runs."""

    def __init__(self, directory, guarded, unguarded, auth=None):
        self.directory = directory
        self.data = directory / "data"
        notes = {"url": guarded, **({"auth": auth} if auth else {})}
        servers = {"mcpServers": {"notes": notes, "open": {"url": unguarded}}}
        settings = {**servers, "embedder": {"provider": "static"}, "logging": {"level": "debug"}}
        (directory / "riglm.yaml").write_text(json.dumps(settings))
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "RIGLM_DATA_DIR": str(self.data),
            "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"],
        }

    def run(self, *words):
        """The exit code, stdout and stderr of one command."""
        command = riglm_command(*words)
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
        )
        return done.returncode, done.stdout, done.stderr

    @contextlib.contextmanager
    def logging_in(self, *words, **environment):
        """A running `riglm login notes`, and the URL that it printed; it has to succeed."""
        with self._login(*words, **environment) as (process, url):
            yield process, url
            out, err = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, err
            assert "signed in to notes" in out

    @contextlib.contextmanager
    def _login(self, *words, **environment):
        process = subprocess.Popen(
            riglm_command("login", "notes", *words),
            cwd=self.directory,
            env={**self.environment, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if line.startswith("http"):
                    break
            else:
                raise AssertionError("".join(lines))
            yield process, line.strip()
        finally:
            process.kill()
            process.communicate()

    def log_in(self):
        with self.logging_in("--no-browser") as (process, url):
            process.stdin.write(redirect_of(url) + "\n")
            process.stdin.flush()

    @asynccontextmanager
    async def client(self):
        """A client of a riglm in front of both servers; what riglm logs is in a file."""
        program, *words = riglm_command("run", "--config", "riglm.yaml", "--no-filter")
        server = StdioServerParameters(command=program, args=words, env=self.environment, cwd=self.directory)
        with (self.directory / "log").open("a") as log:
            async with Client(stdio_client(server, errlog=log), read_timeout_seconds=SECONDS) as client:
                yield client


def redirect_of(url):
    """Where the authorization page sends the browser."""
    response = httpx2.get(url, verify=False)
    assert response.status_code == 302, response.text
    return response.headers["location"]


async def add(client, a=1):
    """The result of a call of the protected server, or the error."""
    try:
        result = await client.call_tool("notes__add", {"a": a, "b": 1})
    except MCPError as error:
        return str(error)
    return result.content[0].text
