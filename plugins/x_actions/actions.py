"""POST, REPLY_ON_X, QUOTE, REPOST, LIKE, SEARCH_X; confirmed worker."""

from typing import Annotated
from uuid import UUID

from bot import ActionResult, Agent, Effect, Example, Task, Turn, action, worker
from plugins.x_actions.operations import (
    ADDRESS,
    LIKE,
    QUOTE,
    REPLY,
    REPOST,
    WORKER,
    Deed,
    acting,
    carried_out,
    done,
    may_act,
    may_search,
    objection_to,
    refused,
    searched,
    subject_of,
)
from plugins.x_actions.trust import Operators

WHICH = "The post's address or number; empty for the one being answered"
NO_POST = "say which post: its address or its number"
PostText = Annotated[str, "The post, in your own words"]
PostId = Annotated[str, WHICH]


@action(
    "POST",
    "Post something on your own timeline on X.",
    similes=["POST_TWEET", "TWEET", "PUBLISH_POST"],
    when=may_act,
    effect=Effect.KEYED,
    examples=[
        [
            Example("Robin", "Post something about the fog this morning"),
            Example("Ada", "I will.", ("REPLY", "POST")),
        ]
    ],
)
async def post(turn: Turn, text: PostText) -> ActionResult:
    """Post it; what is longer than a post becomes a thread."""
    return await done(turn, Deed(text.strip()))


@action(
    "REPLY_ON_X",
    "Reply to another post on X than the one being answered.",
    similes=["REPLY_TO_POST", "REPLY_TO_TWEET", "REPLY_TWEET"],
    when=may_act,
    effect=Effect.KEYED,
)
async def reply(turn: Turn, text: PostText, post: PostId) -> ActionResult:
    """Reply to it, if its author has mentioned us or is listed as wanting that."""
    return await _on(turn, REPLY, post, text)


@action(
    "QUOTE",
    "Quote a post on X on your own timeline, with words of your own.",
    similes=["QUOTE_POST", "QUOTE_TWEET"],
    when=may_act,
    effect=Effect.KEYED,
)
async def quote(turn: Turn, text: PostText, post: PostId = "") -> ActionResult:
    """Quote it."""
    return await _on(turn, QUOTE, post, text)


@action(
    "REPOST",
    "Repost somebody's post on X.",
    similes=["RETWEET", "SHARE_POST"],
    when=may_act,
    effect=Effect.IDEMPOTENT,
)
async def repost(turn: Turn, post: PostId = "") -> ActionResult:
    """Repost it."""
    return await _on(turn, REPOST, post, f"Reposted {ADDRESS}{subject_of(turn, post)}")


@action(
    "LIKE",
    "Like somebody's post on X.",
    similes=["LIKE_POST", "LIKE_TWEET", "FAVORITE"],
    when=may_act,
    effect=Effect.IDEMPOTENT,
)
async def like(turn: Turn, post: PostId = "") -> ActionResult:
    """Like it."""
    return await _on(turn, LIKE, post, f"Liked {ADDRESS}{subject_of(turn, post)}")


@action(
    "SEARCH_ON_X",
    "Look up what people have posted on X about something in the last week.",
    similes=["SEARCH_X", "SEARCH_POSTS", "SEARCH_TWEETS"],
    when=may_search,
    effect=Effect.PURE,
)
async def search(turn: Turn, query: Annotated[str, "The words to look for"]) -> ActionResult:
    """Look it up, which costs some of the month's reads."""
    return await searched(turn, query)


async def _on(turn: Turn, act: str, named: str, text: str) -> ActionResult:
    subject = subject_of(turn, named)
    return await done(turn, acting(turn, act, subject, text)) if subject else refused(NO_POST)


@worker(WORKER)
async def act_on_x(agent: Agent, task: Task) -> None:
    """Do it, and tell in the room where it was confirmed what has become of it."""
    deed, person_id = Deed.of_change(task.metadata["change"]), UUID(str(task.metadata["chosenBy"]))
    room = await agent.store.worlds.room(task.room_id) if task.room_id is not None else None
    person = (await agent.store.entities.entities([person_id])).get(person_id)
    if room is None:
        return
    if person is None or not agent.services[Operators].knows(person):
        told = "Nothing was done: whoever confirmed it is not named in X_OPERATORS."
    elif cause := objection_to(agent, deed):
        told = f"Nothing was done: {cause}."
    else:
        result = await carried_out(agent, deed, key=str(task.id))
        told = "It is on its way to X." if result.success else f"Nothing was done: {result.error}."
    await agent.say(room, told, key=f"{task.id} report")
