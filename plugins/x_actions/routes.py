"""Publishing for whoever has the server's token: how `bot post` reaches a bot that has the books open."""

import asyncio
import base64
import binascii
import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot import Agent, Attachment, Content, MediaKind, RouteRequest, RouteResponse, new_id, route
from bot.platform import DeliveryState
from plugins.x_actions.operations import LONGEST, PLATFORM

PATIENCE, LOOK_AGAIN = 25.0, 0.05
WAITING = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)


class Picture(BaseModel):
    """A picture that goes with a post; its bytes are in base64."""

    model_config = ConfigDict(extra="forbid")
    data: str
    type: str
    name: str = ""
    alt: str = ""


class Wanted(BaseModel):
    """A post that is to be published."""

    model_config = ConfigDict(extra="forbid")
    text: str = Field(min_length=1, max_length=LONGEST)
    pictures: list[Picture] = Field(default_factory=list, max_length=4)


@route("POST", "/posts")
async def publish_post(agent: Agent, request: RouteRequest) -> RouteResponse:
    """Publish a post, and tell what has become of its parts after a moment."""
    feed = next((one for one in agent.outbox.feeds() if one.room.platform == PLATFORM), None)
    if feed is None:
        return _problem(409, "X is not connected")
    try:
        wanted = Wanted.model_validate(json.loads(request.body))
        pictures = tuple(_attachment(one) for one in wanted.pictures)
    except (ValidationError, ValueError) as error:
        return _problem(400, f"that is no post: {type(error).__name__}")
    await agent.store.worlds.save_world(feed.world, [feed.room])
    said = await agent.say(feed.room, Content(text=wanted.text, attachments=pictures))
    if said is None or said.turn_id is None:
        return _problem(400, "nothing was left to say")
    return RouteResponse(json={"parts": await _parts(agent, said.turn_id)})


async def _parts(agent: Agent, turn_id: Any) -> list[dict[str, Any]]:
    """Wait for the outcome of every part, and tell it."""
    clock = asyncio.get_running_loop().time
    end = clock() + PATIENCE
    while True:
        parts = await agent.store.ledger.deliveries(turn_id=turn_id)
        if clock() > end or not any(one.state in WAITING for one in parts):
            break
        await asyncio.sleep(LOOK_AGAIN)
    return [
        {
            "id": one.id,
            "part": one.part,
            "state": one.state.value,
            "external_id": one.external_id,
            "cause": one.cause,
        }
        for one in parts
    ]


def _attachment(picture: Picture) -> Attachment:
    try:
        data = base64.b64decode(picture.data, validate=True)
    except binascii.Error as error:
        raise ValueError("a picture is not in base64") from error
    return Attachment(
        new_id().hex,
        MediaKind.IMAGE,
        content_type=picture.type,
        name=picture.name,
        description=picture.alt,
        data=data,
    )


def _problem(status: int, message: str) -> RouteResponse:
    return RouteResponse(status, json={"error": {"message": message}})
