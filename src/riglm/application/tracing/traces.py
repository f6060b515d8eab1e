"""Puts spans around what serves clients and around the servers."""

from riglm.application.tracing.downstream import TracedConversation, TracedModern
from riglm.application.tracing.upstream import TracedUpstream
from riglm.ports.downstream import Caller, Conversation, ModernService
from riglm.ports.telemetry import TracerPort
from riglm.ports.upstream import UpstreamPort


class Traces:
    """Around each part, one of the same port that makes spans and passes everything on."""

    def __init__(self, tracer: TracerPort) -> None:
        """The spans are made by `tracer`."""
        self._tracer = tracer

    def upstream(self, upstream: UpstreamPort) -> UpstreamPort:
        """A server whose requests are spans."""
        return TracedUpstream(upstream, self._tracer)

    def conversation(self, conversation: Conversation, caller: Caller) -> Conversation:
        """A conversation whose requests are spans."""
        return TracedConversation(conversation, caller, self._tracer)

    def modern(self, service: ModernService) -> ModernService:
        """A service of the modern era whose requests are spans."""
        return TracedModern(service, self._tracer)
