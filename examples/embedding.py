"""A character inside another asyncio program: an aiohttp web application with one chat route.

Run it with `python examples/embedding.py [CHARACTER.json]`, then:

    curl -s localhost:8080/chat -d '{"user": "kim", "text": "hello"}'

The runtime installs no signal handlers and no logging; both belong to the program around it.
"""

import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from bot import (
    AgentConfig,
    ChannelType,
    Content,
    Entity,
    Room,
    Runtime,
    World,
    derived_id,
    load_character,
    load_plugins,
    load_settings,
    new_id,
)
from bot.platform import AgentHandle, InboundMessage

PLATFORM = "embedded"
HANDLE = web.AppKey("handle", AgentHandle)
CHARACTER_FILE = web.AppKey("character_file", Path)


def build_message(user: str, text: str) -> InboundMessage:
    """Return a direct message of a user, with the world, room and author that it belongs to."""
    world = World(derived_id(PLATFORM, "world"), PLATFORM, "app", "My application")
    room = Room(derived_id(PLATFORM, "room", user), world.id, ChannelType.DM, PLATFORM, user, "app", user)
    author = Entity(derived_id(PLATFORM, "entity", user), PLATFORM, user, (user,))
    content = Content(text=text, source=PLATFORM)
    return InboundMessage.build(world, room, author, content, created_at=datetime.now(UTC), message_id=new_id().hex)


async def chat(request: web.Request) -> web.Response:
    """Store the message, wait for its outcome and return the replies with the reason for them."""
    body = await request.json()
    handle = request.app[HANDLE]
    receipt = await handle.submit(build_message(body["user"], body["text"]))
    receipt = await handle.wait_outcome(receipt.id)
    replies = await handle.conversations.replies(receipt.turn_id) if receipt.turn_id else []
    return web.json_response(
        {"outcome": receipt.outcome, "reason": receipt.reason, "replies": [reply.content.text for reply in replies]}
    )


async def run_character(app: web.Application) -> AsyncIterator[None]:
    """Run the character as long as the web application runs."""
    path = app[CHARACTER_FILE]
    loaded = load_character(path)
    settings = load_settings(loaded.character.settings, loaded.secrets)
    plugins = load_plugins(loaded.character, settings, folder=path.parent).plugins
    async with Runtime([AgentConfig(loaded.character, plugins, settings, folder=path.parent)]) as runtime:
        app[HANDLE] = runtime.handles[0]
        yield


def build_app(character_file: Path) -> web.Application:
    """Return the web application; the character starts and stops with it."""
    app = web.Application()
    app[CHARACTER_FILE] = character_file.resolve()
    app.router.add_post("/chat", chat)
    app.cleanup_ctx.append(run_character)
    return app


if __name__ == "__main__":
    web.run_app(build_app(Path(*sys.argv[1:] or ["characters/default.json"])), host="127.0.0.1", port=8080)
