"""Asks a client over HTTP for its roots: the first is the project of its session."""

import asyncio
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from riglm.application.sessions.registry import SessionRegistry
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.domain.session import Session
from riglm.ports.downstream import ClientChannel

_REQUEST: Final = "roots/list"
_CHANGED: Final = "notifications/roots/list_changed"


class ClientRoots:
    """Asks once the client is initialized and has a stream open, and again when its roots change.

    Nothing waits for the answer. It may come to another process that serves the session.
    """

    __slots__ = (
        "_channel",
        "_is_answered",
        "_is_here",
        "_is_initialized",
        "_number",
        "_pending",
        "_session",
        "_sessions",
        "_task",
    )

    def __init__(
        self,
        channel: ClientChannel,
        sessions: SessionRegistry,
        session: Callable[[], Session],
        *,
        is_here: bool,
        is_initialized: bool = False,
    ) -> None:
        """`session` returns the client's session, which is known once the client is initialized.

        `is_here` is True for a client on this machine, whose directories riglm looks at.
        """
        self._channel = channel
        self._sessions = sessions
        self._session = session
        self._is_here = is_here
        self._is_initialized = is_initialized
        self._is_answered = is_initialized and bool(session().project)
        self._pending = False
        self._number = 0
        self._task: asyncio.Task[None] | None = None

    def receive(self, message: Message) -> bool:
        """Take a message of the client; True if it is an answer to riglm, which concerns no server."""
        if message.is_response:
            if not self._is_initialized or not jsonrpc.id_key(message.id or b"").startswith(self._prefix):
                return False
            self._pending, self._is_answered = False, True
            if directory := _first_directory(message):
                self._task = asyncio.get_running_loop().create_task(self._join(directory))
            return True
        if message.method == "notifications/initialized":
            self._is_initialized = True
            self._ask()
        elif message.method == _CHANGED:
            self._is_answered = False
            self._ask()
        return False

    def listen(self, *, listening: bool) -> None:
        """Note whether the client has a stream open for requests of riglm; closing it may have lost one."""
        self._pending = self._pending and listening
        if listening:
            self._ask()

    def _ask(self) -> None:
        if self._is_initialized and not self._pending and not self._is_answered:
            self._number += 1
            self._pending = self._channel.push(jsonrpc.request(b'%b%d"' % (self._prefix, self._number), _REQUEST))

    @property
    def _prefix(self) -> bytes:
        """What the ids of these requests begin with: no server of this client has the like, even if it is a riglm."""
        return b'"riglm-roots:%b:' % str(self._session().id).encode()

    async def _join(self, directory: str) -> None:
        find = self._sessions.project_of
        project = await asyncio.to_thread(find, directory, is_root=True, is_here=self._is_here)
        self._sessions.join_project(self._session(), project)
        self._task = None  # there may be very many idle clients


def _first_directory(answer: Message) -> str:
    """Return the directory that is the client's first root; empty without one, or if it is the root of all files."""
    match jsonrpc.plain(answer.result) if answer.result else None:
        case {"roots": [{"uri": str(uri)}, *_]}:
            try:
                parts = urlsplit(uri)
            except ValueError:
                return ""
            is_file = parts.scheme == "file" and parts.path.startswith("/")
            from urllib.request import url2pathname  # noqa: PLC0415  # it imports 2 MB of libraries

            return url2pathname(parts.path.rstrip("/")) if is_file else ""
        case _:
            return ""
