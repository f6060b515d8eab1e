"""`riglm db purge` and `riglm db vacuum`: what is too old goes, and the space with it."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from riglm.cli.options import ConfigOption, JsonOption
from riglm.cli.output import json_time, print_json
from riglm.cli.progress import progress
from riglm.cli.store_access import alone, opened, paced, settings_of
from riglm.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from riglm.domain.retention import Expiry
    from riglm.domain.schemas.settings import Settings


def purge(
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="SPAN",
            help="Such as 30d, 12h or 2w; by default the `retention` of each kind.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count only.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove what is too old, in small steps, while riglm goes on. Running processes do so by themselves every hour."""
    from riglm.domain.retention import Removed

    settings = settings_of(config)
    expiry = _expiry(settings, older_than)
    with opened(settings) as store:
        found = store.expired(expiry)
        removed = Removed()
        if not dry_run:
            with alone(store), progress("purging", found.total) as advance:
                for step in paced(store.purge(expiry)):
                    removed += step
                    advance(step.total)
    if as_json:
        limits = {name: json_time(limit) for name, limit in asdict(expiry).items() if name != "now"}
        print_json({"dry_run": dry_run, "before": limits, "removed": asdict(found if dry_run else removed)})
    else:
        typer.echo(f"would be removed: {found}" if dry_run else f"removed: {removed}")


def vacuum(
    whole: Annotated[
        bool,
        typer.Option("--whole", help="Rewrite the store; what is recorded meanwhile waits until that is done."),
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give back the space that nothing is stored in."""
    with opened(settings_of(config)) as store:
        before = store.size_bytes()
        with alone(store):
            for done in paced(store.compact(whole=whole)):
                if not as_json:
                    typer.echo(done, err=True)
        after = store.size_bytes()
    told: dict[str, Any] = {"bytes_before": before, "bytes_after": after}
    if as_json:
        print_json(told)
    else:
        typer.echo(f"{before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now")


def _expiry(settings: "Settings", older_than: str | None) -> "Expiry":
    from riglm.domain.duration import parsed_duration
    from riglm.domain.retention import Expiry

    now = time.time()
    if older_than is None:
        return settings.retention.expiry(now)
    try:
        return Expiry.of_all(now - parsed_duration(older_than), now)
    except ValueError as error:
        raise ConfigurationError(f"--older-than: {error}") from error
