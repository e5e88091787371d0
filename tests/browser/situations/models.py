"""Models that do not answer: a loopback server speaks the API of OpenAI and fails as real ones do."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from bot.models import TextRequest
from plugins.openai import plugin as openai_plugin
from tests.browser.situations.running import Bot, Group, Running, Situation, run_bots, silence
from tests.plugins.loopback import Answer, Asked, loopback
from tests.plugins.openai.wire import completion

TEXTS = ("Hello", "Are you there?", "Nobody?", "Well then")
KEY = "sk-a-key-of-the-tests"
QUOTA = {"error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": None}}
TOO_LONG = {"error": {"message": "maximum context length is 8192 tokens", "code": "context_length_exceeded"}}
# By the name of the model that a bot asks for.
ANSWERS: Mapping[str, Answer] = {
    "wrong-key": Answer({"error": {"message": "Incorrect API key"}}, 401),
    "no-credit": Answer(QUOTA, 429),
    "unknown": Answer({"error": {"message": "The model does not exist"}}, 404),
    "overloaded": Answer({"error": {"message": "The server is overloaded"}}, 503),
    "web-page": Answer("<html>A proxy says hello</html>", content_type="text/html"),
    "elsewhere": Answer({"error": {"message": "Country, region, or territory not supported"}}, 403),
    "small": Answer(TOO_LONG, 400),
    "empty": Answer(completion("")),
}
ON_OVERVIEW = {
    "wrong-key": ("the key is refused", "Ada", "refused the key in OPENAI_API_KEY (401): set a valid key"),
    "no-credit": ("no credit is left", "Ben", "has no credit left for the key in OPENAI_API_KEY"),
    "unknown": ("the model does not exist", "Cleo", "does not know the model or path (404)"),
    "overloaded": ("the model is overloaded and rests", "Dora", "openai is paused after repeated failures."),
    "elsewhere": ("it is not offered in this country", "Finn", "refused the request (403): Country"),
    "web-page": ("a proxy answers instead of it", "Emil", "returned no chat completion"),
}
IN_RECEIPT = {"small": "Gus", "empty": "Hal"}


def answer(asked: Asked) -> Answer:
    """Answer as the model that is asked for does."""
    return ANSWERS[asked.json["model"]]


@asynccontextmanager
async def open_models() -> AsyncIterator[Running]:
    """Run bots whose models fail, and write to each until its model has been tried often enough."""
    async with loopback() as server:
        server.answers = answer
        names = {model: name for model, (_, name, _) in ON_OVERVIEW.items()} | IN_RECEIPT
        bots = [
            Bot(
                name,
                plugins=(openai_plugin,),
                has_model=False,
                settings={
                    "OPENAI_API_KEY": KEY,
                    "OPENAI_BASE_URL": f"{server.url}/v1",
                    "OPENAI_LARGE_MODEL": model,
                    "OPENAI_SMALL_MODEL": model,
                    "MODEL_RETRIES": "0",
                },
            )
            for model, name in names.items()
        ]
        address = {"OPENAI_BASE_URL": "http://127.0.0.1:9"}
        unreachable = replace(bots[0], name="Ida", settings={**bots[0].settings, **address})
        async with run_bots(
            *bots, unreachable, Bot("Jan", script=slow, settings={"RESPONSE_TIMEOUT": "1000"})
        ) as running:
            for bot in running.bots:
                await running.write(bot, *TEXTS[: 1 if bot == "Jan" else 4], room=f"Room of {bot}")
            yield running


async def slow(request: TextRequest) -> str:
    """Answer after the time that a turn may take."""
    await asyncio.Event().wait()
    return ""


GROUP = Group(
    "models",
    open_models,
    [
        *[Situation(f"model: {what}", cause, about=f"Used by {name}.") for what, name, cause in ON_OVERVIEW.values()],
        Situation("model: nothing listens at its address", "cannot connect to 127.0.0.1:9", about="Used by Ida."),
        silence("model: the prompt is too long", "Failed: the prompt is too long for the model"),
        silence("model: it answers with nothing", "Failed: the model's answers were empty"),
        silence("model: it takes too long", "Failed: it took too long"),
    ],
)
