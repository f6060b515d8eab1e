"""The embedder that the configuration asks for."""

from pathlib import Path

from riglm.adapters.embedding.bundled import BUNDLED_MODEL
from riglm.adapters.embedding.cached import CachedEmbedder
from riglm.adapters.embedding.chosen import ChosenEmbedder
from riglm.adapters.embedding.fallback import FallbackEmbedder
from riglm.adapters.embedding.fastembed import FastembedEmbedder
from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.adapters.embedding.plugged import select_embedder
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.embedder import OWN_PROVIDERS, Embedder
from riglm.ports.embedder import EmbedderPort, Embedders
from riglm.ports.vector_cache import VectorCachePort

_COMMON_MODELS = ("sentence-transformers/all-MiniLM-L6-v2", "BAAI/bge-small-en-v1.5")


def build_embedder(settings: Embedder, cache: VectorCachePort | None = None) -> EmbedderPort:
    """An embedder that always answers and never uses a network; not open yet.

    It is the configured model; else the bundled one; else a common one that was downloaded earlier; else hashed
    vectors.
    """
    return build_embedders(settings, cache).always


def build_embedders(
    settings: Embedder, cache: VectorCachePort | None = None, shared_in: Path | None = None
) -> Embedders:
    """The same embedder, and the configured model without a fallback; neither is open yet.

    `shared_in` is the directory of the socket of the server that the user's riglm processes share, if they may.
    """
    if settings.provider == "static":
        hashing = HashingEmbedder()
        return Embedders(always=hashing, chosen=hashing)
    if settings.provider != "fastembed":
        plugged = select_embedder(settings.provider, settings.options)
        return Embedders(always=CachedEmbedder(FallbackEmbedder(plugged, HashingEmbedder()), cache), chosen=plugged)
    model = FastembedEmbedder(
        candidates(settings),
        directory=models_directory(settings),
        deadline=settings.deadline,
        start_deadline=settings.start_deadline,
        batch=settings.batch,
        idle=settings.idle,
        shared_in=shared_in if settings.shared else None,
    )
    configured = settings.model if "model" in settings.model_fields_set else None
    return Embedders(
        always=CachedEmbedder(FallbackEmbedder(model, HashingEmbedder()), cache),
        chosen=ChosenEmbedder(model, configured),
    )


def candidates(settings: Embedder) -> tuple[str, ...]:
    """The models to try, in this order."""
    return tuple(dict.fromkeys((settings.model, BUNDLED_MODEL, *_COMMON_MODELS)))


def require_known_model(settings: Embedder) -> None:
    """Raise ConfigurationError if the configured model does not exist; it need not be downloaded."""
    if settings.provider not in OWN_PROVIDERS:
        select_embedder(settings.provider, settings.options)
    if settings.provider != "fastembed" or settings.model == BUNDLED_MODEL:
        return
    from riglm.adapters.embedding.onnx_model import UnknownModel, described_model

    try:
        described_model(settings.model)
    except UnknownModel as error:
        raise ConfigurationError(f"embedder.model: {error}") from error


def models_directory(settings: Embedder) -> Path:
    """Where downloaded models are kept; it need not exist."""
    if settings.directory:
        return Path(settings.directory).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("riglm", appauthor=False)) / "models"
