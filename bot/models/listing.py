"""`ModelListing`: the models that a server has, what each can do, and what to say where one is missing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

from bot.errors import ModelBusy, ModelError, ModelRefused
from bot.models.types import ModelInfo
from bot.text import suggest

logger = logging.getLogger(__name__)

MAX_LISTED = 10
LIST_TIMEOUT = 5.0  # seconds for the models of a server; the conversation does not depend on it


@dataclass(eq=False, repr=False)
class ModelListing:
    """The models of one server, fetched once; kept by the service that is connected to it.

    `provider` is the plugin's name. `wanted` are the models that settings name, by variable. `advice` says what
    to do about a model that the server has not; "{model}" in it is replaced by its name. `fetch` asks the
    server and raises ModelError if it does not answer. `models` are by name, None until the server has listed them.
    `bot doctor` shows the `listing` of each service.
    """

    fetch: Callable[[], Awaitable[Sequence[ModelInfo]]]
    _: KW_ONLY
    provider: str
    host: str
    advice: str
    wanted: Mapping[str, str | None] | None = None
    models: Mapping[str, ModelInfo] | None = None

    async def load(self) -> tuple[ModelInfo, ...]:
        """Return the models of the server, which is asked until it has listed them once.

        Raises ModelError if it does not.
        """
        if self.models is None:
            try:
                async with asyncio.timeout(LIST_TIMEOUT):
                    models = await self.fetch()
            except TimeoutError:
                raise ModelBusy(f"{self.provider}: {self.host} has not listed its models in time") from None
            self.models = {model.name: model for model in models}
        return tuple(self.models.values())

    async def log(self) -> None:
        """Log the models of the server, and which of the wanted ones it has not; for the start of a service."""
        try:
            names = {model.name for model in await self.load()}
        except ModelError as error:
            logger.warning("%s; the models are listed when they are needed", error)
            return
        logger.info("%s", self.describe())
        for variable, name in (self.wanted or {}).items():
            if name and name not in names:
                start = f"{self.provider}: {self.host} has no model {name!r} ({variable})"
                logger.warning(
                    "%s: %s", start, suggest(name, names, otherwise=self._advice_on(name)), extra={"once": True}
                )

    def info(self, name: str) -> ModelInfo:
        """Return what the server has told of a model; nothing but its name if it has not listed it."""
        return (self.models or {}).get(name) or ModelInfo(name)

    def describe(self) -> str:
        """Return a line that names the server and its models, first the ones that settings name.

        It is empty if the server has not listed them.
        """
        if self.models is None:
            return ""
        names = dict.fromkeys([*(self.wanted or {}).values(), *self.models])
        models = [str(self.models[name]) for name in names if name and name in self.models]
        listed = ", ".join(models[:MAX_LISTED])
        if len(models) > MAX_LISTED:
            listed += f" and {len(models) - MAX_LISTED} more"
        return f"{self.provider}: models of {self.host}: {listed or 'none'}"

    async def find_text_model(self, default: str, variables: str) -> str:
        """Return the model to use where no setting names one: the only model for text that the server has.

        The default, if there is one, is kept at a server that has it, and at one that lists no models.
        Raises ModelRefused, naming the variables to set, if the server has several others, or none at all.
        """
        try:
            models = await self.load()
        except ModelError:
            if default:
                return default  # the request for a text then tells what is wrong
            raise
        names = [model.name for model in models if not model.is_embedding]
        if default in names or (default and not names):
            return default
        if len(names) == 1:
            return names[0]
        self.models = None  # so that the next call finds what was changed meanwhile
        start = f"{self.provider}: {self.host} has"
        if not names:
            raise ModelRefused(f"{start} no model for text: {self._advice_on('NAME')}")
        unknown = f" and not {default}" if default else ""
        raise ModelRefused(
            f"{start} several models{unknown}: set {variables} to one of {', '.join(names[:MAX_LISTED])}"
        )

    def _advice_on(self, name: str) -> str:
        return self.advice.replace("{model}", name)
