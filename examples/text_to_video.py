"""Text to video: an action that takes minutes, tells how far it is, and after a crash pays for nothing twice.

It uses fal.ai: set FAL_KEY. The request is queued, its id is stored, and then its state is asked for until it is done.
"""

import asyncio
from typing import Annotated, Any, Self

import aiohttp
from pydantic import Field

from bot import ActionResult, BotError, Effect, Plugin, Secret, Service, SettingsModel, Turn, action
from bot.prompts import Authority

MODEL = "fal-ai/minimax/hailuo-02/standard/text-to-video"
STATES = {"IN_QUEUE": "It waits in the queue", "IN_PROGRESS": "It is being drawn"}


class FalSettings(SettingsModel):
    """The variables of fal.ai; only the operator sets them."""

    fal_key: Secret | None = Field(None, description="The key of fal.ai.")
    fal_url: str = Field("https://queue.fal.run", description="The address of its queue.")
    fal_poll_seconds: float = Field(3, gt=0, description="How often the state of a video is asked for, in seconds.")


class Fal(Service):
    """The queue of fal.ai."""

    capability = "make short videos of what is described"

    async def __aenter__(self) -> Self:
        self.settings = self.agent.settings.load(FalSettings)
        key = self.settings.fal_key.get_secret_value() if self.settings.fal_key is not None else ""
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Key {key}"}, timeout=aiohttp.ClientTimeout(total=30), raise_for_status=True
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, method: str, path: str = "", body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer about the model's queue as JSON. Raises BotError."""
        url = f"{self.settings.fal_url}/{MODEL}{path}"
        try:
            async with self._session.request(method, url, json=body, allow_redirects=False) as response:
                answer = await response.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise BotError(f"fal.ai did not answer as expected: {type(error).__name__}") from None
        if not isinstance(answer, dict):
            raise BotError("fal.ai did not answer as expected")
        return answer


def has_key(turn: Turn) -> bool:
    """Return whether FAL_KEY is set."""
    return turn.agent.settings.load(FalSettings).fal_key is not None


@action(
    "TEXT_TO_VIDEO",
    "Make a short video of what the user describes. It takes minutes.",
    similes=["CREATE_VIDEO", "MAKE_VIDEO", "GENERATE_VIDEO"],
    when=has_key,
    effect=Effect.KEYED,
    authority=Authority.named("video", "film", "clip", targets=()),
    deadline=900,
)
async def text_to_video(
    turn: Turn, description: Annotated[str, "What it shows", Field(min_length=3, max_length=500)]
) -> ActionResult:
    """Queue the video unless this turn has done so before, report its state, and send its address."""
    fal, cache, key = turn.agent.services[Fal], turn.agent.store.cache, f"video/{turn.id}"
    try:
        request_id = await cache.get(key)
        if request_id is None:
            queued = await fal.ask("POST", body={"prompt": description, "duration": "6"})
            request_id = str(queued.get("request_id", ""))
            if not request_id.replace("-", "").isalnum():
                raise BotError("fal.ai gave the video no id")
            await cache.set(key, request_id)
        path = f"/requests/{request_id}"
        while (state := (await fal.ask("GET", f"{path}/status")).get("status")) != "COMPLETED":
            if state not in STATES:
                raise BotError("fal.ai could not make it")
            turn.report_progress(f"{STATES[state]}…")
            await asyncio.sleep(fal.settings.fal_poll_seconds)
        url = (await fal.ask("GET", path)).get("video", {}).get("url", "")
    except BotError as error:
        return ActionResult(False, error=str(error), authors=())
    if not str(url).startswith(("https://", "http://")):
        return ActionResult(False, error="fal.ai gave the video no address", authors=())
    await turn.reply(f"Here is your video: {url}")
    return ActionResult(text=f"the video of {description!r} was sent", data={"video_url": url})


plugin = Plugin(
    "text_to_video", "Makes videos with fal.ai.", actions=[text_to_video], services=[Fal], settings=FalSettings
)
