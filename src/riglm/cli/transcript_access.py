"""What `riglm learn-from` knows before it reads transcripts, and what it learns with."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from riglm.adapters.configuration.locations import project_root
from riglm.domain.client_setup import ENTRY
from riglm.domain.hashing import KeyedHasher
from riglm.domain.learning import learning_scope
from riglm.domain.schemas.settings import Settings
from riglm.ports.analytics import AnalyticsPort

if TYPE_CHECKING:
    from riglm.application.setup.transcripts.collecting import ImportContext, ProxyInstance
    from riglm.application.setup.transcripts.recording import PairTraining

_TRUE: Final = frozenset({"true", "1", "yes", "on", "y", "t"})  # as settings take a text for a truth
_MAX_SESSIONS: Final = 100_000
_BEFORE_SECONDS: Final = 7 * 86_400.0
"""A session that went on at some time began no longer before it."""

_AHEAD_SECONDS: Final = 3_600.0
"""Maximum clock difference in seconds between riglm and the client that wrote a transcript."""


def find_proxies(config: Path | None, mcp_json: Path | None, client: str) -> "list[ProxyInstance]":
    """Return the riglm configurations in front of the servers of a client: the given one, or those by `riglm init`.

    Where it made none for this client, those of others may have its servers.

    Raises:
        ConfigurationError: a file that is named cannot be read.
    """
    from riglm.adapters.configuration.loading import FILE_NAME, Options, set_values
    from riglm.cli.setup_access import installations

    everywhere = installations()
    if config is not None or mcp_json is not None or Path(FILE_NAME).is_file() or not everywhere:
        return [_proxy(set_values(Options(config=config, mcp_json=mcp_json)))]
    installed = [each for each in everywhere if each.client == client] or everywhere
    by_hand = {ENTRY} - {each.entry for each in everywhere}
    return [
        replace(
            _proxy(set_values(Options(config=each.configuration))),
            entries=frozenset({each.entry, *by_hand}),
            before=each.servers,
        )
        for each in installed
        if each.configuration.is_file()
    ]


def _proxy(values: Mapping[str, object]) -> "ProxyInstance":
    """The servers that a configuration names, whose variables may be unset here, and how it names their tools."""
    from riglm.application.setup.transcripts.collecting import ProxyInstance
    from riglm.domain.upstream import derive_name

    servers: tuple[str, ...] = ()
    match values:
        case {"upstream": {**upstream}}:
            given = (upstream.get("command"), upstream.get("args"))
            words = [word for each in given for word in (each if isinstance(each, list) else [each]) if word]
            servers = (derive_name([str(word) for word in words], str(upstream.get("url") or "")),)
        case {"mcpServers": {**named}}:
            servers = tuple(
                str(name)
                for name, said in named.items()
                if not (isinstance(said, dict) and str(said.get("disabled")).lower() in _TRUE)
            )
    match values.get("naming"):
        case ("on_collision" | "none") as naming:
            return ProxyInstance(servers=servers, naming=naming)
    return ProxyInstance(servers=servers)


def find_project(directory: str) -> str:
    """Return what names the project of a directory that a client was started in, empty if it is unknown here."""
    return project_root(directory) if Path(directory).is_absolute() else ""


def load_hasher(settings: Settings) -> KeyedHasher:
    """Return the hasher of the store, whose key must be stored: with a new one every import would look new.

    Raises:
        ConfigurationError: the key cannot be kept.
    """
    from riglm.adapters.configuration.locations import store_path
    from riglm.adapters.keyfile import load_or_create_key
    from riglm.container import Container

    if settings.privacy.key is None:
        load_or_create_key(store_path(settings).parent / "riglm.key")
    return Container(settings=settings).hasher()


def import_context(
    settings: Settings,
    store: AnalyticsPort,
    hasher: KeyedHasher,
    by_client: "Mapping[str, Sequence[ProxyInstance]]",
    since: float,
    now: float,
) -> "ImportContext":
    """Return what is known before the first transcript is read, of which calls since a time are wanted.

    Raises:
        AnalyticsUnavailableError: the store cannot be read.
    """
    from riglm.application.setup.transcripts.collecting import ImportContext, LiveCallMatcher, ToolNames

    kept_since = settings.retention.expiry(now).invocations or 0.0
    listed = store.list_known_tools()
    return ImportContext(
        names={client: ToolNames(found, listed) for client, found in by_client.items()},
        live=LiveCallMatcher(store.list_training_sessions(_MAX_SESSIONS, max(since, kept_since) - _BEFORE_SECONDS)),
        known=lambda id_: frozenset(call.id for call in store.list_invocations(id_)),
        hasher=hasher,
        since=since,
        kept_since=kept_since,
        until=now + _AHEAD_SECONDS,
        hashes_arguments=settings.privacy.arguments != "none",
    )


@contextmanager
def open_pair_training(
    settings: Settings, store: AnalyticsPort, hasher: KeyedHasher, principal: str
) -> "Iterator[PairTraining]":
    """Return the pair training with the model that riglm uses with these settings; it is unloaded at the end.

    Raises:
        AnalyticsUnavailableError: the store cannot be read.
    """
    from riglm.application.setup.transcripts.recording import PairTraining
    from riglm.container import Container
    from riglm.domain.retrieval.pairs import LearnedPairs

    most = settings.learning.max_pairs
    with Container(settings=settings).embedders().always as embedder:
        pairs = LearnedPairs(hasher.derived_key("learned pairs"))
        pairs.restore(store.list_learned_pairs(embedder.model, most))
        scope = learning_scope(principal if settings.learning.scope == "principal" else "", settings.filtering.profile)
        yield PairTraining(pairs, embedder, most_pairs=most, scope=scope, names=hasher.client_name)
