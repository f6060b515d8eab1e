"""The configuration files that riglm is started with on this machine."""

from pathlib import Path


def files_in_use(config: Path | None) -> list[Path]:
    """The file that is named, else ./riglm.yaml, else those that `riglm init` made; none when there are none."""
    from riglm.adapters.configuration.loading import FILE_NAME

    if config is not None:
        return [config]
    here = Path(FILE_NAME)
    return [here] if here.is_file() else [file for _, file in installed()]


def installed() -> list[tuple[str, Path]]:
    """The clients that `riglm init` put riglm in front of, each with its configuration; every file once."""
    from riglm.composition.installing import installations

    found = {one.configuration: one.client for one in installations() if one.configuration.is_file()}
    return [(client, file) for file, client in found.items()]
