"""A filter and meta-tools that do what a test says."""

import asyncio
from dataclasses import replace

from riglm.application.filtering.filtering_service import FilteringService
from riglm.application.proxy.list_changes import ListChanges
from riglm.application.tool_lists.list_writer import MetaToolResult
from riglm.application.tool_lists.selection import ListSelection
from riglm.domain import jsonrpc
from riglm.domain.exposure import Surface
from riglm.domain.session_state import SessionState
from tests.unit.application.fakes import World

OWN = b'{"name":"search_available_tools","description":"own"}'


class ScriptedFilter(FilteringService):
    """Shows what it is told to, everything untouched by default, and refuses what it is told to."""

    def __init__(self):
        super().__init__()
        self.shown = None
        self.denied = set()
        self.kind = Surface.DYNAMIC
        self.fails = None
        self.changes = False
        self.fresh = 60.0
        self.failed = []
        self.known = []
        self.awaits_usage = False
        self.usage_read = asyncio.Event()
        self.prepared = []
        self.forgotten = []
        self.states = {}
        self.seen = "known"
        self.is_off = False
        self.others = False
        self.passed_on = []

    @property
    def is_on(self):
        return not self.is_off

    @is_on.setter
    def is_on(self, value):
        """Tests decide by `is_off`."""

    def reconfigured(self, session):
        return self.others

    def passed(self, session, catalog, *, is_whole):
        self.passed_on.append((catalog.names, is_whole))

    @property
    def guards(self):
        return bool(self.denied)

    @guards.setter
    def guards(self, value):
        """Tests decide by `denied`."""

    def surface(self, session):
        return self.kind

    def needs_usage(self, session):
        return self.awaits_usage

    def announces(self, session):
        return self.kind is Surface.DYNAMIC

    def when_foreshadowed(self, listener):
        self.foreshadowed = listener

    def overridden(self, session):
        return self.changes

    async def prepare(self, session, catalog):
        self.prepared.append(session.id)
        await self.usage_read.wait()

    def compose(self, session, catalog):
        if self.fails:
            raise self.fails
        self.know(session, catalog)
        seen = [tool for tool in catalog.tools if tool.name not in self.denied]
        names = tuple(tool.name for tool in seen if self.shown is None or tool.name in self.shown)
        self.state(session).shown = names
        return ListSelection(
            shown=names,
            hidden=tuple(tool.name for tool in seen if tool.name not in names),
            raw=b"[%b]" % b",".join([*(bytes(catalog.by_name[name].raw) for name in names), OWN]),
            is_passthrough=names == catalog.names and self.shown is None,
            predictor="scripted",
            reason="the test",
            mode="enforce",
            surface=self.kind,
            tokens_shown=1,
            tokens_hidden=2,
            tokens_own=3,
        )

    def know(self, session, catalog):
        self.known.append(catalog.names)

    def fresh_seconds(self, session):
        return self.fresh

    def denial(self, session, name, owner=None):
        names = {name, *(owner or ())[1:], "__".join(owner or ())}
        return "denied" if {one.casefold() for one in names} & {one.casefold() for one in self.denied} else None

    def denies_by_name(self, name):
        return name in self.denied

    def state(self, session):
        return self.states.setdefault(session.id, SessionState(view=self.seen))

    def listed(self, session):
        return frozenset(self.state(session).shown or ())

    def forget(self, session):
        self.forgotten.append(session.id)

    def called(self, session, tool, found, meta=b"", *, success=True):
        self.failed += [] if success else [tool]


class ScriptedMeta:
    """Owns the tools of riglm; `call_tool` goes where its arguments say."""

    names = ("set_context", "search_available_tools", "call_tool")

    def __init__(self, filtering):
        self.filtering = filtering
        self.ran = []
        self.gate = None
        self.fails = None

    def owns(self, session, name):
        return name in self.names and not (self.filtering.known and name in self.filtering.known[-1])

    def is_denied(self, name):
        return self.filtering.denies_by_name(name)

    def withholds(self, session, name):
        return False

    def needs_catalog(self, session, name, arguments):
        return name != "call_tool" or self.filtering.state(session).view is None

    def is_unknown(self, session, names):
        return False

    def is_confidential(self, name):
        return False

    async def run(self, session, name, arguments):
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            raise self.fails
        self.ran.append((name, arguments))
        fields = jsonrpc.members(arguments)
        forward = None
        if name == "call_tool":
            forward = (bytes(fields["name"]), bytes(fields.get("arguments", b"")))
        elif name == "search_available_tools":
            self.filtering.state(session).searched.add(jsonrpc.text(fields["query"]))
        return MetaToolResult(
            result=b'{"content":[{"type":"text","text":"own"}]}', list_changed=name == "set_context", forward=forward
        )


class ShowingWorld(World):
    """The services of one process, with a filter that does what it is told."""

    def __init__(self, **more):
        super().__init__(**more)
        self.filter = ScriptedFilter()
        self.meta = ScriptedMeta(self.filter)
        self.changes = ListChanges(self.filter)
        self.parts = replace(self.parts, filtering=self.filter, meta_tools=self.meta, list_changes=self.changes)
