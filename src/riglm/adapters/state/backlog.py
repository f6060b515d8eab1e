"""Changes that could not be sent while the shared state was unavailable."""

from collections import OrderedDict, deque
from itertools import chain, islice
from typing import Final

Command = tuple[str | bytes | int, ...]
"""A command of the server, with its arguments."""

MOST_VALUES: Final = 10_000
"""Maximum number of values kept, those that were set first are dropped first."""

MOST_NEWS: Final = 1_000
"""Maximum number of news kept, the oldest are dropped first."""


class Backlog:
    """The last command for each key, and the news in their order; bounded."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._values: OrderedDict[str, Command] = OrderedDict()
        self._news: deque[Command] = deque(maxlen=MOST_NEWS)
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._values) + len(self._news)

    def value(self, key: str, command: Command) -> None:
        """Keep a command that sets or removes the value of a key."""
        self._values.pop(key, None)
        self._values[key] = command
        if len(self._values) > MOST_VALUES:
            self._values.popitem(last=False)
            self.forgotten += 1

    def news(self, command: Command) -> None:
        """Keep news for this command."""
        self.forgotten += len(self._news) == MOST_NEWS
        self._news.append(command)

    def first(self, most: int) -> list[Command]:
        """The commands that come first, values before news, since news are about them."""
        return list(islice(chain(self._values.values(), self._news), most))

    def told(self, commands: list[Command]) -> None:
        """Remove changes that were sent, unless there is something newer."""
        done = set(map(id, commands))
        self._values = OrderedDict((key, one) for key, one in self._values.items() if id(one) not in done)
        self._news = deque((one for one in self._news if id(one) not in done), maxlen=MOST_NEWS)
