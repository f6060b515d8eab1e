"""Which tools are called next."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Protocol, runtime_checkable

from riglm.domain.errors import ConfigurationError
from riglm.domain.prediction import Prediction, PredictionInput


@runtime_checkable
class PredictorPort(Protocol):
    """An online learner: `learn` from what happened, `predict` from what is known now.

    Works before it has learned anything, on tools that it never saw, and in bounded memory over any stream. Options are
    keyword arguments of the constructor, all with defaults. Called on the event loop: no I/O, and quick.
    """

    @abstractmethod
    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        """A call of `tool` was made in `prediction_input`; `weight` is how informative it is.

        The tool need not be among the candidates. What is passed is not kept or changed.
        """

    @abstractmethod
    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        """One finite score for each candidate; with `explain`, the contribution of each signal.

        Changes nothing: asking twice gives the same answer. No candidates, no scores.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginPoint:
    """A place for parts of one kind.

    `group` is that of the entry points, `what` a part is called in messages, `key` names a part in the configuration
    and `options` has its options; `methods` are what every part has, and `port` says more of them.
    """

    group: str
    what: str
    key: str
    options: str
    methods: Sequence[str]
    port: str

    def names(self) -> tuple[str, ...]:
        """The parts that are installed, sorted; nothing of theirs is imported."""
        return tuple(sorted({point.name for point in entry_points(group=self.group)}))

    def make(self, name: str, options: Mapping[str, Any] | None = None, *, own: Sequence[str] = ()) -> Any:
        """Make a part with these options; `own` are the names that no package brings.

        Raises:
            ConfigurationError: nothing of this name is installed, it cannot be loaded, it is no such part, or it does
                not take the options.
        """
        point = next((point for point in entry_points(group=self.group) if point.name == name), None)
        if point is None:
            known = ", ".join(dict.fromkeys([*own, *self.names()]))
            raise ConfigurationError(f"{self.key}: unknown {self.what} {name!r} — fix: one of {known}")
        made = self._made(point, options or {})
        missing = [method for method in self.methods if not callable(getattr(made, method, None))]
        if missing:
            raise ConfigurationError(
                f"{self.key}: {name!r} ({point.value}) is no {self.what}: it has no {' and no '.join(missing)} — fix: "
                f"give it the methods of {self.port}"
            )
        return made

    def _made(self, point: EntryPoint, options: Mapping[str, Any]) -> object:
        try:
            maker = point.load()
        except Exception as error:
            raise ConfigurationError(
                f"{self.key}: {point.name!r} ({point.value}) cannot be loaded: {error} "
                "— fix: repair or remove its package"
            ) from error
        if not callable(maker):
            raise ConfigurationError(
                f"{self.key}: {point.name!r} ({point.value}) is no class — fix: name a class in its entry point"
            )
        try:
            return maker(**options)
        except ConfigurationError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f"{self.options}: {point.name!r} does not take {dict(options)!r}: {error} — fix: options it knows"
            ) from error


PREDICTORS: Final = PluginPoint(
    group="riglm.predictors",
    what="predictor",
    key="predictor.kind",
    options="predictor.options",
    methods=("learn", "predict"),
    port="riglm.ports.predictor.PredictorPort",
)
EMBEDDERS: Final = PluginPoint(
    group="riglm.embedders",
    what="embedder",
    key="embedder.provider",
    options="embedder.options",
    methods=("__enter__", "__exit__", "embed", "status"),
    port="riglm.ports.embedder.EmbedderPort",
)
