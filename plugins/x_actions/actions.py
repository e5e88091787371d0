"""POST, REPLY_ON_X, QUOTE, REPOST, LIKE, DELETE_POST and SEARCH_ON_X, for operators."""

from typing import Annotated

from bot import ActionResult, Effect, ExampleLine, Turn, action
from bot.platform import PostOperation, PostOperationKind
from bot.prompts import ActionPreview, Authority
from plugins.x_actions.operations import (
    POST_URL,
    XOperation,
    build_operation,
    build_refusal,
    can_act,
    can_search,
    find_post_id,
    perform_operation,
    refusal_for,
    search_posts,
)

POST_HELP = "The post's address or number; empty for the one being answered"
NO_POST_TEXT = "say which post: its address or its number"
PostText = Annotated[str, "The post, in your own words"]
PostId = Annotated[str, POST_HELP]


async def preview_post(turn: Turn, text: str) -> ActionPreview | ActionResult:
    """Return what would be posted."""
    return _preview(turn, XOperation(text.strip()))


async def preview_reply(turn: Turn, text: str, post: str) -> ActionPreview | ActionResult:
    """Return what would be replied to which post."""
    return _preview(turn, _find_operation(turn, PostOperationKind.REPLY, post, text), post)


async def preview_quote(turn: Turn, text: str, post: str = "") -> ActionPreview | ActionResult:
    """Return which post would be quoted with what."""
    return _preview(turn, _find_operation(turn, PostOperationKind.QUOTE, post, text), post)


async def preview_repost(turn: Turn, post: str = "") -> ActionPreview | ActionResult:
    """Return which post would be reposted."""
    return _preview(turn, _find_operation(turn, PostOperationKind.REPOST, post), post)


async def preview_like(turn: Turn, post: str = "") -> ActionPreview | ActionResult:
    """Return which post would be liked."""
    return _preview(turn, _find_operation(turn, PostOperationKind.LIKE, post), post)


async def preview_deletion(turn: Turn, post: str) -> ActionPreview | ActionResult:
    """Return which post would be deleted."""
    return _preview(turn, _find_deletion(turn, post), post)


@action(
    "POST",
    "Post something on your own timeline on X.",
    similes=["POST_TWEET", "TWEET", "PUBLISH_POST"],
    when=can_act,
    effect=Effect.KEYED,
    authority=Authority.named(),
    preview=preview_post,
    examples=[
        [
            ExampleLine("Robin", "Post something about the fog this morning"),
            ExampleLine("Ada", "I will.", ("REPLY", "POST")),
        ]
    ],
)
async def post(turn: Turn, text: PostText) -> ActionResult:
    """Publish a post; a long text becomes a thread."""
    return await perform_operation(turn, XOperation(text.strip()))


@action(
    "REPLY_ON_X",
    "Reply to another post on X than the one being answered.",
    similes=["REPLY_TO_POST", "REPLY_TO_TWEET", "REPLY_TWEET"],
    when=can_act,
    effect=Effect.KEYED,
    authority=Authority.named("reply", "answer"),
    preview=preview_reply,
)
async def reply(turn: Turn, text: PostText, post: PostId) -> ActionResult:
    """Reply to a post, if its author has mentioned the bot or is listed."""
    return await _perform(turn, _find_operation(turn, PostOperationKind.REPLY, post, text))


@action(
    "QUOTE",
    "Quote a post on X on your own timeline, with your own comment.",
    similes=["QUOTE_POST", "QUOTE_TWEET"],
    when=can_act,
    effect=Effect.KEYED,
    authority=Authority.named(),
    preview=preview_quote,
)
async def quote(turn: Turn, text: PostText, post: PostId = "") -> ActionResult:
    """Quote a post."""
    return await _perform(turn, _find_operation(turn, PostOperationKind.QUOTE, post, text))


@action(
    "REPOST",
    "Repost somebody's post on X.",
    similes=["RETWEET", "SHARE_POST"],
    when=can_act,
    effect=Effect.IDEMPOTENT,
    authority=Authority.named(),
    preview=preview_repost,
)
async def repost(turn: Turn, post: PostId = "") -> ActionResult:
    """Repost a post."""
    return await _perform(turn, _find_operation(turn, PostOperationKind.REPOST, post))


@action(
    "LIKE",
    "Like somebody's post on X.",
    similes=["LIKE_POST", "LIKE_TWEET", "FAVORITE"],
    when=can_act,
    effect=Effect.IDEMPOTENT,
    authority=Authority.named(),
    preview=preview_like,
)
async def like(turn: Turn, post: PostId = "") -> ActionResult:
    """Like a post."""
    return await _perform(turn, _find_operation(turn, PostOperationKind.LIKE, post))


@action(
    "DELETE_POST",
    "Delete one of your own posts on X for good, with its thread.",
    similes=["DELETE_TWEET", "REMOVE_POST", "REMOVE_TWEET"],
    when=can_act,
    effect=Effect.IDEMPOTENT,
    authority=Authority.named("delete", "remove"),
    confirm="code",
    preview=preview_deletion,
)
async def delete(turn: Turn, post: Annotated[str, "The post's address or number"]) -> ActionResult:
    """Delete a post of the account; it must be named."""
    return await _perform(turn, _find_deletion(turn, post))


@action(
    "SEARCH_ON_X",
    "Look up what people have posted on X about something in the last week.",
    similes=["SEARCH_X", "SEARCH_POSTS", "SEARCH_TWEETS"],
    when=can_search,
    effect=Effect.PURE,
    authority=Authority.harmless("it looks something up and shows it in the room of the message"),
)
async def search(turn: Turn, query: Annotated[str, "The words to look for"]) -> ActionResult:
    """Search posts, which costs some of the month's reads."""
    return await search_posts(turn, query)


def _find_operation(turn: Turn, kind: PostOperationKind, reference: str, text: str = "") -> XOperation | None:
    post_id = find_post_id(turn, reference)
    if not post_id:
        return None
    reports = {PostOperationKind.REPOST: "Reposted", PostOperationKind.LIKE: "Liked"}
    text = f"{reports[kind]} {POST_URL}{post_id}" if kind in reports else text
    return build_operation(turn, PostOperation(kind, post_id), text)


def _find_deletion(turn: Turn, post: str) -> XOperation | None:
    post_id = find_post_id(turn, post) if post.strip() else ""
    return XOperation(f"Delete {POST_URL}{post_id}", deleted_id=post_id) if post_id else None


async def _perform(turn: Turn, operation: XOperation | None) -> ActionResult:
    return build_refusal(NO_POST_TEXT) if operation is None else await perform_operation(turn, operation)


def _preview(turn: Turn, operation: XOperation | None, reference: str = "") -> ActionPreview | ActionResult:
    """Return what would be done on X, with the post by its number, or why it cannot be.

    The post being answered, which `reference` leaves open, needs no other name.
    """
    if operation is None:
        return build_refusal(NO_POST_TEXT)
    if refusal := refusal_for(turn.agent, operation):
        return build_refusal(refusal)
    post_id = operation.deleted_id or (operation.target.post_id if operation.target is not None else "")
    names = [(post_id,)] if reference.strip() else []
    names += [(operation.text,)] if operation.creates_post else []
    return ActionPreview(operation.confirmation_text, tuple(names), {"post": post_id} if post_id else {})
