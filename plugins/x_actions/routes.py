"""HTTP routes with which `bot post` publishes and deletes through a running bot."""

import asyncio
import base64
import binascii
import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot import Agent, Attachment, Content, MediaKind, RouteRequest, RouteResponse, new_id, route
from bot.platform import DeliveryError, DeliveryState, Undeliverable
from plugins.x_actions.operations import MAX_TEXT_LENGTH, find_feed

WAIT_SECONDS, POLL_SECONDS = 25.0, 0.05
OPEN_STATES = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)


class Picture(BaseModel):
    """A picture of a post; its data is base64."""

    model_config = ConfigDict(extra="forbid")
    data: str
    type: str
    name: str = ""
    alt: str = ""


class PostRequest(BaseModel):
    """A post to publish."""

    model_config = ConfigDict(extra="forbid")
    text: str = Field(min_length=1, max_length=MAX_TEXT_LENGTH)
    pictures: list[Picture] = Field(default_factory=list, max_length=4)


class DeletionRequest(BaseModel):
    """A post to delete, by its id on X."""

    model_config = ConfigDict(extra="forbid")
    id: str = Field(pattern=r"^\d{1,19}$")


@route("POST", "/posts")
async def publish_post(agent: Agent, request: RouteRequest) -> RouteResponse:
    """Publish a post; return the state of its parts after a short wait."""
    feed = find_feed(agent)
    if feed is None:
        return _error_response(409, "X is not connected")
    try:
        post_request = PostRequest.model_validate(json.loads(request.body))
        pictures = tuple(_to_attachment(picture) for picture in post_request.pictures)
    except (ValidationError, ValueError) as error:
        return _error_response(400, f"not a valid post: {type(error).__name__}")
    await agent.store.worlds.save_world(feed.world, [feed.room])
    message = await agent.say(feed.room, Content(text=post_request.text, attachments=pictures))
    if message is None or message.turn_id is None:
        return _error_response(400, "nothing was left to send")
    return RouteResponse(json={"parts": await _wait_for_parts(agent, message.turn_id)})


@route("POST", "/posts/delete")
async def delete_post(agent: Agent, request: RouteRequest) -> RouteResponse:
    """Delete a post of the account; return whether it was still there."""
    feed = find_feed(agent)
    if feed is None or feed.delete is None:
        return _error_response(409, "X is not connected")
    try:
        post_id = DeletionRequest.model_validate(json.loads(request.body)).id
    except (ValidationError, ValueError) as error:
        return _error_response(400, f"not the id of a post: {type(error).__name__}")
    try:
        return RouteResponse(json={"deleted": await feed.delete(post_id)})
    except DeliveryError as error:
        return _error_response(403 if isinstance(error, Undeliverable) else 503, f"the post was not deleted: {error}")


async def _wait_for_parts(agent: Agent, turn_id: Any) -> list[dict[str, Any]]:
    """Wait for the outcome of every part; return their states."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + WAIT_SECONDS
    while True:
        parts = await agent.store.ledger.deliveries(turn_id=turn_id)
        if clock() > deadline or not any(part.state in OPEN_STATES for part in parts):
            break
        await asyncio.sleep(POLL_SECONDS)
    return [
        {
            "id": part.id,
            "part": part.part,
            "state": part.state.value,
            "external_id": part.external_id,
            "cause": part.cause,
        }
        for part in parts
    ]


def _to_attachment(picture: Picture) -> Attachment:
    try:
        data = base64.b64decode(picture.data, validate=True)
    except binascii.Error as error:
        raise ValueError("a picture is not base64") from error
    return Attachment(
        new_id().hex, MediaKind.IMAGE, content_type=picture.type, name=picture.name, description=picture.alt, data=data
    )


def _error_response(status: int, message: str) -> RouteResponse:
    return RouteResponse(status, json={"error": {"message": message}})
