"""The actions: only those whom X_OPERATORS names, and whoever sits at the terminal, can have them done."""

from typing import Annotated

from bot import ActionResult, Effect, Example, Turn, action
from plugins.x_actions.deeds import (
    ADDRESS,
    LIKE,
    QUOTE,
    REPLY,
    REPOST,
    Deed,
    acting,
    done,
    may_act,
    may_search,
    refused,
    searched,
    subject_of,
)

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
