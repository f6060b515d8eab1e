"""What is taken from transcripts, counted."""

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Account:
    """What was found in the transcripts of one client, and what became of it.

    Every call that was read is new, known (from an earlier import), live (riglm recorded it itself), copied (once more
    in a resumed conversation), not run, too old (than was asked for), expired (older than the store keeps), future (of
    a time that is still to come), forgotten, of meta-tools, or of a server that is not behind riglm
    (`elsewhere`, by server). Names are guessed where no riglm has servers yet. `sessions` have new calls, and
    `billed_sessions` the token counts of `requests` model requests.
    `damaged` lines and `unreadable` files were passed over.
    """

    client: str
    are_names_guessed: bool = False
    files: int = 0
    size: int = 0
    sessions: int = 0
    billed_sessions: int = 0
    requests: int = 0
    read: int = 0
    new: int = 0
    known: int = 0
    live: int = 0
    copied: int = 0
    not_run: int = 0
    too_old: int = 0
    expired: int = 0
    future: int = 0
    forgotten: int = 0
    own: int = 0
    elsewhere: dict[str, int] = field(default_factory=dict)
    tools: set[str] = field(default_factory=set)
    servers: set[str] = field(default_factory=set)
    damaged: list[tuple[str, int, str]] = field(default_factory=list)
    damaged_lines: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def left_out(self) -> int:
        """Calls that were read and not taken."""
        return self.read - self.new
