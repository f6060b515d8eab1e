"""What clients and servers may rely on when riglm stands between them; every entry has a test, every test an entry."""

from dataclasses import dataclass

import pytest


@dataclass(frozen=True, slots=True)
class Requirement:
    """One behaviour, and where it is asked for."""

    id: str
    source: str
    behaviour: str


MANIFEST = (
    # payloads
    Requirement("payload.params", "PRODUCT 2", "Params of requests arrive byte for byte."),
    Requirement(
        "payload.result", "PRODUCT 2", "Results arrive byte for byte: numbers, escapes, spaces, lone surrogates."
    ),
    Requirement(
        "payload.error", "PRODUCT 2", "JSON-RPC errors arrive with their code, message and data byte for byte."
    ),
    Requirement("payload.tool_error", "PRODUCT 2", "A tool's failure arrives as the result that it is."),
    Requirement(
        "payload.greeting", "PRODUCT 2", "Both sides see each other's capabilities and identity, vendor fields too."
    ),
    Requirement("payload.vendor_request", "PROTOCOL 1", "Unknown methods and tasks pass both ways."),
    Requirement("payload.vendor_notification", "PROTOCOL 1", "Unknown notifications pass both ways."),
    Requirement("payload.big", "RELIABILITY U8", "10 MB pass in one message, from either side."),
    Requirement("payload.id", "RELIABILITY 2", "Answers carry the id as the client wrote it."),
    # lists
    Requirement(
        "list.unchanged", "PRODUCT 2", "With one upstream every list keeps its names, order, fields and bytes."
    ),
    Requirement("list.pages", "PROTOCOL 4", "Cursors lead through the same pages as without riglm."),
    Requirement("list.requests", "PROTOCOL 1", "Prompts, resources, templates and completion answer as without riglm."),
    # calls
    Requirement("call.once", "HOUSE 4.3", "One request of the client is one request to the upstream."),
    Requirement("call.own_answer", "RELIABILITY R10", "Every client gets its own answers, whatever ids others use."),
    Requirement("call.own_state", "RELIABILITY 5 #20", "Handshake-era clients do not share an upstream's session."),
    Requirement("call.progress", "PROTOCOL 4", "Progress reaches the caller, with its own token, before the answer."),
    Requirement("call.log", "PROTOCOL 1", "Log messages reach the client that asked for their level."),
    Requirement("call.cancel", "PROTOCOL 1", "A cancelled request is cancelled upstream, and no other is."),
    Requirement("call.late_reply", "RELIABILITY U7", "A reply that comes after the cancellation is dropped."),
    Requirement("call.left", "RELIABILITY C1", "A handshake-era call goes on when its response stream is closed."),
    # questions of the server
    Requirement(
        "question.round_trip", "PROTOCOL 1", "Sampling, elicitation, roots, ping and unknown requests reach the client."
    ),
    Requirement("question.refused", "PROTOCOL 1", "The client's error answers reach the server byte for byte."),
    Requirement("question.own_client", "RELIABILITY 2", "A question goes to the client whose call raised it."),
    Requirement("question.roots_changed", "PROTOCOL 1", "The client's notifications reach the server."),
    Requirement(
        "question.input_required", "PROTOCOL 1", "Rounds of input_required pass, request state and new ids included."
    ),
    # changes
    Requirement(
        "change.lists", "RELIABILITY U10", "list_changed reaches the client, and the next list is the new one."
    ),
    Requirement("change.resource", "PROTOCOL 4", "resources/updated reaches subscribers, until they unsubscribe."),
    Requirement("change.listen", "PROTOCOL 1", "Subscriptions deliver changes stamped with the listener's own id."),
    Requirement(
        "change.storm", "RELIABILITY U10", "A storm of changes leaves the final state and a working connection."
    ),
    # eras
    Requirement("era.mirrored", "PROTOCOL 2", "The upstream is spoken to in the client's era."),
    Requirement(
        "era.fallback", "PROTOCOL 2", "A modern request to a handshake-only upstream answers -32022 with versions."
    ),
    Requirement("era.translated", "PROTOCOL 2", "A handshake client works with a modern-only upstream."),
    Requirement("era.versions", "PROTOCOL 1", "Every handshake revision is negotiated between client and upstream."),
    # bad input
    Requirement("bad.client_message", "RELIABILITY 3", "A message that is none gets an error, and the next one works."),
    Requirement("bad.client_bytes", "RELIABILITY 3", "Noise in the client's bytes does no harm."),
    Requirement(
        "bad.upstream_noise", "RELIABILITY U5-U7", "Noise around an upstream's answers is neither felt nor passed on."
    ),
    # faults
    Requirement(
        "fault.crash", "RELIABILITY U1-U2", "A crash mid-call is an error that names the upstream; the next call works."
    ),
    Requirement(
        "fault.start", "RELIABILITY U2-U3", "An upstream that does not start or hangs at initialize gives an error."
    ),
    Requirement("fault.hang", "RELIABILITY U4", "A call past its deadline is an error, and is cancelled upstream."),
    Requirement("fault.restart", "RELIABILITY U11", "An HTTP upstream that restarted is re-initialised unseen."),
    Requirement(
        "fault.down", "RELIABILITY U11", "An HTTP upstream that is down is an error, and works once it is back."
    ),
    Requirement("fault.http", "RELIABILITY U12", "A broken HTTP answer is an error, never a second execution."),
    # several upstreams
    Requirement(
        "many.names", "PRODUCT 2", "Tools and prompts of several upstreams are listed as server__name and routed."
    ),
    Requirement("many.health", "RELIABILITY U13", "Hung and dead upstreams hide and delay none of the others."),
    Requirement("many.resources", "PRODUCT 2", "Resources of several upstreams keep usable URIs."),
    Requirement(
        "many.traffic", "PRODUCT 2", "Progress, cancellation, questions and changes work with several upstreams."
    ),
    Requirement("many.eras", "PROTOCOL 2", "One handshake-only upstream among several makes all of them handshake."),
    Requirement("many.collision", "PRODUCT 2", "Names that collide stop the start and are both named."),
    # filtering
    Requirement(
        "filter.denied", "PRODUCT 6", "A denied tool is neither listed, found nor run, in any spelling, era, transport."
    ),
    Requirement("filter.transparent", "PRODUCT 6", "Shadow mode and a list that hides nothing pass byte for byte."),
    Requirement("filter.envelope", "PROTOCOL 1", "A filtered list keeps the server's fields, and is private."),
    Requirement("filter.stable", "PRODUCT 6", "In the modern era no call changes a list."),
    Requirement("filter.recorded", "PRODUCT 4", "A refused call is recorded as a failure."),
    # riglm's own tools
    Requirement("meta.recovery", "source 003", "A missed tool is found, called, and at hand in its next context."),
    Requirement("meta.call_tool", "PRODUCT 7", "call_tool answers as the tool itself: results, errors, progress."),
    Requirement("meta.changed", "PRODUCT 7", "A client hears once that its list changed, and gets the new one."),
    # the inner voice
    Requirement("voice.gate", "source 004", "inner_voice.retrieve is off until its gate is opened, and says so."),
    Requirement("voice.lists", "PRODUCT 10", "It is in every list of every surface, era and transport, once."),
    Requirement("voice.schema", "source 004", "Answers are exactly of the declared schema, as an object and as text."),
    Requirement("voice.parameters", "source 004", "Numbers out of bounds are put on the bound."),
    Requirement("voice.errors", "source 004", "What goes wrong has a code of the closed list, and tells no more."),
    Requirement("voice.dimensions", "source 004", "Vectors of other dimensions or models are never compared."),
    Requirement("voice.mix", "source 004", "Graph and thoughts have their shares, and fill up for each other."),
    Requirement("voice.private", "source 004", "Private thoughts leave the store when they are asked for only."),
    Requirement("voice.tags", "source 004", "Tags include and exclude."),
    Requirement("voice.duplicates", "source 004", "The same text is given once, whatever the tables."),
    Requirement("voice.cap", "source 004", "Long texts are cut at 800 characters, behind a sentence if there is one."),
    Requirement("voice.empty", "source 004", "An answer without snippets says why."),
    Requirement("voice.floor", "source 004", "The floor gives way for a source, down to the least one."),
    Requirement("voice.settings", "source 004", "The variables are put on their bounds, with a warning each."),
    Requirement("voice.logs", "source 004", "Logs have numbers and no words; with MCP_NO_LOG counters alone."),
    Requirement("voice.owner", "issue Inner voice", "A principal gets its own, unless the store is shared."),
    Requirement("voice.recorded", "PRODUCT 4", "Calls are recorded as riglm's own, with the arguments' hash alone."),
    # security
    Requirement(
        "guard.credentials", "RELIABILITY 2", "A client's credentials reach no upstream; the configured ones do."
    ),
    Requirement("guard.origin", "RELIABILITY R15", "Forged Host and Origin are refused before anything is done."),
    Requirement("guard.token", "RELIABILITY 2", "With a token configured, nobody comes in without it."),
    Requirement("guard.isolation", "PRODUCT 2", "Callers share no process with state, message, list or training."),
    Requirement("guard.session", "RELIABILITY 5 #13", "A session that riglm does not know is answered with 404."),
    # life
    Requirement("life.stdout", "PROTOCOL 6", "riglm's stdout carries messages and nothing else."),
    Requirement("life.end", "PROTOCOL 6", "End of input, SIGTERM and SIGINT end riglm with exit code 0 and no orphan."),
    Requirement("life.killed", "RELIABILITY C5", "When riglm is killed no child stays, stubborn ones included."),
    Requirement("life.sessions", "RELIABILITY R8", "Clients that left leave no child process and no open file."),
    Requirement("life.start_errors", "issue Proxy", "What cannot start ends with exit code 2 and says what is wrong."),
    # recording
    Requirement("record.calls", "PRODUCT 4", "Every invocation is recorded with its session, order and outcome."),
    Requirement(
        "record.purge", "RELIABILITY 5 #24", "No call waits for records that are purged or forgotten meanwhile."
    ),
    Requirement("record.secrets", "RELIABILITY 2", "Planted secrets are found nowhere in what riglm stores or logs."),
    # several processes
    Requirement("processes.sessions", "PRODUCT 11", "Any process serves any request of a session, in both eras."),
    Requirement(
        "processes.at_once", "PRODUCT 11", "Calls of one session that processes serve at once are counted together."
    ),
    Requirement("processes.principal", "RELIABILITY 2", "Only its own principal goes on with a session elsewhere."),
    Requirement("processes.ended", "PRODUCT 11", "A session that its client ended is ended at every process."),
    Requirement("processes.changed", "issue Storage", "A changed list is heard of at whichever process one listens."),
    Requirement("processes.killed", "PRODUCT 11", "The loss of a process ends no session."),
    Requirement("processes.alone", "RELIABILITY S7", "Without the shared state each process goes on by itself."),
    Requirement("processes.forgotten", "PRODUCT 4", "What processes share of a session is forgotten with it."),
    Requirement("processes.learned", "PRODUCT 11", "What one process learns the others know within seconds."),
    # traces
    Requirement(
        "trace.continued", "PRODUCT 9", "A client's trace goes on through riglm to the server, and holds no content."
    ),
    Requirement("trace.off", "PRODUCT 9", "Without tracing a client's trace context passes byte for byte."),
    Requirement("trace.unfelt", "PRODUCT 9", "Where spans go is never felt by calls, nor by the end."),
    # real peers
    Requirement("peer.sdk", "issue Proxy", "The SDK's client and server work through riglm in both eras."),
    Requirement("peer.fastmcp", "issue Proxy", "FastMCP's client works through riglm in both eras."),
    Requirement("peer.inspector", "issue Proxy", "The Inspector works through riglm in both eras."),
    # the suite itself
    Requirement("manifest.complete", "HOUSE 4.1", "Every behaviour has a test, and every test names a behaviour."),
)

_KNOWN = {requirement.id for requirement in MANIFEST}


def behaviour(identifier: str) -> pytest.MarkDecorator:
    """Say which behaviour a test proves."""
    assert identifier in _KNOWN, f"{identifier} is not in the manifest"
    return pytest.mark.behaviour(identifier)
