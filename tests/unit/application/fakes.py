"""A small world for the inside: servers in memory that answer when told to, a clock, and records in a list."""

from types import SimpleNamespace

from riglm.application.catalogues import Catalogues
from riglm.application.filtering import FilteringService
from riglm.application.services import Services
from riglm.application.sessions import Evidence, SessionRegistry
from riglm.application.tracking import CalledNote, TrackingService
from riglm.domain.exposure import Exposure
from riglm.domain.hashing import KeyedHasher
from riglm.domain.session import Session
from riglm.ports.analytics import SessionClosed
from riglm.ports.downstream import ReplySink


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Records:
    """What was recorded, in order."""

    Note = CalledNote

    def __init__(self):
        self.all = []

    def put(self, item, size):
        self.all.append(item)

    def of(self, kind):
        return [item for item in self.all if isinstance(item, kind)]

    @property
    def calls(self):
        return [(note.tool, note.upstream, note.error_kind, note.found) for note in self.of(CalledNote)]

    @property
    def shown(self):
        return [exposure.shown for exposure in self.of(Exposure)]

    @property
    def opened(self):
        return {session.id for session in self.of(Session)}

    @property
    def closed(self):
        return [closed.session_id for closed in self.of(SessionClosed)]


class World:
    """The services of one process, with everything recorded in a list."""

    def __init__(self, *, filtering=None, grace=0.05, **evidence):
        self.clock = Clock()
        self.records = Records()
        self.hasher = KeyedHasher(bytes(32))
        self.tracking = TrackingService(self.records, self.hasher, SimpleNamespace(arguments="raw"))
        self.sessions = SessionRegistry(
            self.tracking, self.hasher, Evidence(**evidence), monotonic=self.clock, clock=self.clock
        )
        self.services = Services(
            tracking=self.tracking,
            sessions=self.sessions,
            catalogues=Catalogues(),
            filtering=filtering or FilteringService(),
            grace=grace,
        )


class Sink(ReplySink):
    """Keeps what one request got."""

    def __init__(self):
        self.got = []

    def related(self, message, event=None):
        self.got.append(("related", message.line, event))

    def primed(self, event):
        self.got.append(("primed", event))

    def replied(self, message, status=200, event=None):
        self.got.append(("replied", message.line, status, event))

    def interrupted(self):
        self.got.append(("interrupted",))
