"""/feed and the action FEED: an admin has a room follow a feed, lists the feeds that it follows, or removes one."""

from datetime import timedelta
from re import compile as compile_pattern
from typing import Annotated, Literal

from pydantic import Field

from bot import ActionResult, Agent, BotError, CommandContext, Effect, ExampleLine, Role, Room, Turn, action, command
from bot.prompts import ANYBODY, Authority
from bot.text import english_text, shorten, translate_message, user_text
from plugins.feeds.feed import follow, list_feeds

EVERY = compile_pattern(r"every (\d{1,4}) ?(m|min|h|d)")
UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
HOUR = timedelta(hours=1)


@command("feed", english_text("commands.feed.description"), role=Role.ADMIN, open_in_direct=True)
async def feed(
    context: CommandContext,
    what: Annotated[Literal["list", "add", "remove"], "What to do"] = "list",
    url: Annotated[str, "The address of the feed"] = "",
    options: Annotated[str, "As in: every 2h voice"] = "",
) -> str:
    """Add a feed to those that the room follows, list them, or remove one."""
    agent, room = context.agent, context.invocation.room
    if what == "list":
        return await _describe_feeds(agent, room) or user_text("commands.feed.nothing")
    if what == "remove":
        return user_text("commands.feed.removed" if await _remove(agent, room, url) else "commands.feed.unknown")
    found = EVERY.search(options.casefold())
    interval = int(found[1]) * UNITS[found[2][0]] if found else HOUR
    try:
        reading = await follow(
            agent, room, context.invocation.author.id, url.strip(), interval, has_voice="voice" in options.casefold()
        )
    except BotError as error:
        return user_text("commands.feed.refused", reason=translate_message(str(error)))
    return user_text("commands.feed.added", title=reading.title or url, count=len(reading.entries))


@action(
    "FEED",
    "Have this room follow an RSS or Atom feed, or end that.",
    similes=["FOLLOW_FEED", "RSS", "UNFOLLOW_FEED"],
    role=Role.ADMIN,
    effect=Effect.IDEMPOTENT,
    authority=Authority.named("feed", "rss", "atom", "follow", "subscribe", "abonnier", "abonne", "suscrib"),
    examples=[
        [
            ExampleLine("{{name1}}", "follow the feed https://example.org/news.xml here"),
            ExampleLine("{{agentName}}", "I will post what is new.", ("FEED",)),
        ]
    ],
)
async def follow_feed(
    turn: Turn,
    url: Annotated[str, "The feed's address, as the user wrote it", Field(max_length=500)],
    remove: Annotated[bool, "Whether to end it"] = False,
) -> ActionResult:
    """Add a feed that is read once an hour to those that the room follows, or remove it."""
    if remove:
        is_removed = await _remove(turn.agent, turn.room, url)
        text = "The feed is removed." if is_removed else "this room does not follow that feed"
        return ActionResult(is_removed, text=text, error="" if is_removed else text, authors=())
    try:
        reading = await follow(turn.agent, turn.room, turn.author.id, url.strip(), HOUR, has_voice=False)
    except BotError as error:
        return ActionResult(False, text=str(error), error=str(error), authors=())
    return ActionResult(text=f"New entries of {reading.title or url} are posted here every hour.", authors=(ANYBODY,))


async def _remove(agent: Agent, room: Room, url: str) -> bool:
    """Delete the feed that an address, or a number in the list, names; return False if there is none."""
    feeds = await list_feeds(agent, room)
    for number, task in enumerate(feeds, 1):
        if url.strip() in (task.description, str(number)):
            return await agent.store.tasks.delete_task(task.id)
    return False


async def _describe_feeds(agent: Agent, room: Room) -> str:
    lines = [
        f"{number}. {shorten(str(task.metadata['title']), 80)} {task.description}"
        for number, task in enumerate(await list_feeds(agent, room), 1)
    ]
    return "\n".join(lines)
