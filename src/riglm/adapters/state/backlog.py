"""What could not be told while the shared state was away."""

from collections import OrderedDict, deque
from itertools import chain, islice
from typing import Final

Command = tuple[str | bytes | int, ...]
"""A command of the server, with its arguments."""

MOST_VALUES: Final = 10_000
"""Values beyond so many are forgotten, those that were set first before others."""

MOST_NEWS: Final = 1_000
"""News beyond so many are forgotten, the oldest first."""


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
        """The value of a key is to be set or removed by this command."""
        self._values.pop(key, None)
        self._values[key] = command
        if len(self._values) > MOST_VALUES:
            self._values.popitem(last=False)
            self.forgotten += 1

    def news(self, command: Command) -> None:
        """News are to be told by this command."""
        self.forgotten += len(self._news) == MOST_NEWS
        self._news.append(command)

    def first(self, most: int) -> list[Command]:
        """The commands that come first, values before news, since news are about them."""
        return list(islice(chain(self._values.values(), self._news), most))

    def told(self, commands: list[Command]) -> None:
        """These need not be told any more, unless there is something newer."""
        done = set(map(id, commands))
        self._values = OrderedDict((key, one) for key, one in self._values.items() if id(one) not in done)
        self._news = deque((one for one in self._news if id(one) not in done), maxlen=MOST_NEWS)
