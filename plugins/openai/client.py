"""The connections to the API: one for each server and key that the settings name."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import openai

from bot import Agent, Service
from plugins.openai.faults import explained
from plugins.openai.settings import APART, OpenAISettings, Place, place_of

NO_KEY = "none"  # the SDK insists on a key where local servers want none
CONNECTING = 10.0  # seconds; for the rest the router has deadlines


@dataclass(frozen=True, slots=True)
class Line:
    """A connection to one server: errors that come over it are put into our words."""

    sdk: openai.AsyncOpenAI
    place: Place
    secrets: frozenset[str]

    @property
    def host(self) -> str:
        """The server's name."""
        return self.sdk.base_url.host

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Ask the server within this.

        Raises ModelRefused for what no repetition mends, ModelBusy where the server is not there or
        busy, ModelError for anything else.
        """
        try:
            yield
        except openai.OpenAIError as error:
            raise explained(error, self.place, self.host, self.secrets) from error


class Client(Service):
    """All connections to the API, opened and closed with the agent."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.settings = agent.settings.load(OpenAISettings)
        places = {part: place_of(self.settings, part) for part in ("", *APART)}
        secrets = frozenset(one.key.get_secret_value() for one in places.values() if one.key)
        self._lines: dict[str, Line] = {}
        for part, place in places.items():
            known = (one for one in self._lines.values() if _same(one.place, place))
            sdk = next((one.sdk for one in known), None) or _opened(place)
            self._lines[part] = Line(sdk, place, secrets)
        # What a model, by host and name, has refused to be asked with: it is not asked with that again.
        self.refused: dict[tuple[str, str], set[str]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in self._lines.values():
            await line.sdk.close()

    def line(self, part: str = "") -> Line:
        """Give the connection for a part of `APART`; the one for texts where none is named."""
        return self._lines[part]


def _same(one: Place, other: Place) -> bool:
    return (one.url, one.key) == (other.url, other.key)


def _opened(place: Place) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        api_key=place.key.get_secret_value() if place.key else NO_KEY,
        base_url=place.url,
        max_retries=0,  # the router asks again, and books every try
        timeout=openai.Timeout(None, connect=CONNECTING),
    )
