"""POST, REPLY_ON_X, QUOTE, REPOST, LIKE, DELETE_POST, SEARCH_ON_X; confirmed worker."""

from typing import Annotated

from bot import ActionResult, Agent, ChoiceRequest, Effect, ExampleLine, Task, Turn, action, worker
from bot.platform import PostOperation, PostOperationKind
from plugins.x_actions.operations import (
    POST_URL,
    WORKER,
    XOperation,
    build_operation,
    build_refusal,
    can_act,
    can_search,
    find_post_id,
    refusal_for,
    request_operation,
    search_posts,
    submit_operation,
)
from plugins.x_actions.trust import Operators

POST_HELP = "The post's address or number; empty for the one being answered"
NO_POST_TEXT = "say which post: its address or its number"
PostText = Annotated[str, "The post, in your own words"]
PostId = Annotated[str, POST_HELP]


@action(
    "POST",
    "Post something on your own timeline on X.",
    similes=["POST_TWEET", "TWEET", "PUBLISH_POST"],
    when=can_act,
    effect=Effect.KEYED,
    examples=[
        [
            ExampleLine("Robin", "Post something about the fog this morning"),
            ExampleLine("Ada", "I will.", ("REPLY", "POST")),
        ]
    ],
)
async def post(turn: Turn, text: PostText) -> ActionResult:
    """Publish a post; a long text becomes a thread."""
    return await request_operation(turn, XOperation(text.strip()))


@action(
    "REPLY_ON_X",
    "Reply to another post on X than the one being answered.",
    similes=["REPLY_TO_POST", "REPLY_TO_TWEET", "REPLY_TWEET"],
    when=can_act,
    effect=Effect.KEYED,
)
async def reply(turn: Turn, text: PostText, post: PostId) -> ActionResult:
    """Reply to a post, if its author has mentioned the bot or is listed."""
    return await _act_on_post(turn, PostOperationKind.REPLY, post, text)


@action(
    "QUOTE",
    "Quote a post on X on your own timeline, with your own comment.",
    similes=["QUOTE_POST", "QUOTE_TWEET"],
    when=can_act,
    effect=Effect.KEYED,
)
async def quote(turn: Turn, text: PostText, post: PostId = "") -> ActionResult:
    """Quote a post."""
    return await _act_on_post(turn, PostOperationKind.QUOTE, post, text)


@action(
    "REPOST", "Repost somebody's post on X.", similes=["RETWEET", "SHARE_POST"], when=can_act, effect=Effect.IDEMPOTENT
)
async def repost(turn: Turn, post: PostId = "") -> ActionResult:
    """Repost a post."""
    return await _act_on_post(turn, PostOperationKind.REPOST, post, f"Reposted {POST_URL}{find_post_id(turn, post)}")


@action(
    "LIKE",
    "Like somebody's post on X.",
    similes=["LIKE_POST", "LIKE_TWEET", "FAVORITE"],
    when=can_act,
    effect=Effect.IDEMPOTENT,
)
async def like(turn: Turn, post: PostId = "") -> ActionResult:
    """Like a post."""
    return await _act_on_post(turn, PostOperationKind.LIKE, post, f"Liked {POST_URL}{find_post_id(turn, post)}")


@action(
    "DELETE_POST",
    "Delete one of your own posts on X for good, with its thread.",
    similes=["DELETE_TWEET", "REMOVE_POST", "REMOVE_TWEET"],
    when=can_act,
    effect=Effect.IDEMPOTENT,
)
async def delete(turn: Turn, post: Annotated[str, "The post's address or number"]) -> ActionResult:
    """Delete a post of the account; it must be named."""
    post_id = find_post_id(turn, post) if post.strip() else ""
    if not post_id:
        return build_refusal(NO_POST_TEXT)
    return await request_operation(turn, XOperation(f"Delete {POST_URL}{post_id}", deleted_id=post_id))


@action(
    "SEARCH_ON_X",
    "Look up what people have posted on X about something in the last week.",
    similes=["SEARCH_X", "SEARCH_POSTS", "SEARCH_TWEETS"],
    when=can_search,
    effect=Effect.PURE,
)
async def search(turn: Turn, query: Annotated[str, "The words to look for"]) -> ActionResult:
    """Search posts, which costs some of the month's reads."""
    return await search_posts(turn, query)


async def _act_on_post(turn: Turn, kind: PostOperationKind, reference: str, text: str) -> ActionResult:
    post_id = find_post_id(turn, reference)
    if not post_id:
        return build_refusal(NO_POST_TEXT)
    return await request_operation(turn, build_operation(turn, PostOperation(kind, post_id), text))


@worker(WORKER)
async def act_on_x(agent: Agent, task: Task) -> None:
    """Execute a confirmed operation and report the result in the room where it was confirmed."""
    request = ChoiceRequest.from_metadata(task.metadata)
    operation, entity_id = XOperation.from_metadata(request.operation), request.chooser
    room = await agent.store.worlds.room(task.room_id) if task.room_id is not None else None
    entity = (await agent.store.entities.entities([entity_id])).get(entity_id)
    if room is None:
        return
    if entity is None or not agent.services[Operators].is_operator(entity):
        report = "Nothing was done: the person who confirmed it is not in X_OPERATORS."
    elif refusal := refusal_for(agent, operation):
        report = f"Nothing was done: {refusal}."
    else:
        result = await submit_operation(agent, operation, key=str(task.id))
        done = result.text if operation.deleted_id else "It is on its way to X."
        report = done if result.success else f"Nothing was done: {result.error}."
    await agent.say(room, report, key=f"{task.id} report")
