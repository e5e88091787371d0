"""Contract of every store: reactions to replies of the agent are votes, one of a person on a reply."""

from dataclasses import replace
from datetime import timedelta

from bot.domain.inbound import Reaction
from bot.domain.ledger import Delivery, DeliveryState
from bot.domain.memory import Memory, MemoryKind
from bot.store.activity import VoteSum
from bot.store.protocols import Store
from tests.store.test_store_changes import LATER, build_message, commit_reply, receive

TODAY = LATER.date()


async def react(
    store: Store, name: str, emoji: str, message_id: str = "sent-1", *, days: int = 0, is_bot: bool = False
) -> Memory | None:
    message = build_message(author=name, is_bot=is_bot)
    at = LATER + timedelta(days=days)
    return await store.edits.save_reaction(Reaction(message.world, message.room, message.author, message_id, emoji, at))


async def answer(store: Store) -> Delivery:
    """Store a message and a reply that was sent; return the delivery of the reply."""
    [receipt] = await receive(store, build_message())
    delivery = await commit_reply(store, receipt)
    sent = replace(delivery, state=DeliveryState.SENT, external_id="sent-1")
    await store.ledger.save_delivery(sent)
    return sent


async def test_the_last_reaction_that_likes_or_dislikes_a_reply_is_the_vote_of_a_person(store: Store) -> None:
    sent = await answer(store)
    assert await store.activity.votes_of(sent.turn_id) is None
    for name, emoji in (("Bob", "👍"), ("Cy", "👎"), ("Cy", "🔥"), ("Dee", "💩"), ("Dee", "🤔"), ("Eve", "🤔")):
        await react(store, name, emoji)
    assert await store.activity.votes_of(sent.turn_id) == VoteSum(TODAY, 2, 1)
    assert await store.activity.votes(TODAY) == [VoteSum(TODAY, 2, 1)]


async def test_a_removed_vote_is_not_counted_and_the_earlier_vote_is_counted_again(store: Store) -> None:
    sent = await answer(store)
    first, second = await react(store, "Bob", "👎"), await react(store, "Bob", "👍")
    assert first is not None
    assert second is not None
    await store.memories.remove([second.id])
    assert await store.activity.votes_of(sent.turn_id) == VoteSum(TODAY, 0, 1)
    await store.memories.remove([first.id])
    assert await store.activity.votes_of(sent.turn_id) is None


async def test_reactions_of_bots_and_reactions_to_messages_of_people_are_no_votes(store: Store) -> None:
    sent = await answer(store)
    await react(store, "Robot", "👍", is_bot=True)
    await react(store, "Bob", "👍", "1")
    await react(store, "Bob", "👍", "unknown")
    assert await store.activity.votes_of(sent.turn_id) is None
    assert await store.activity.votes(TODAY) == []


async def test_votes_are_summed_by_day_and_go_with_the_reply(store: Store) -> None:
    sent = await answer(store)
    for days, name in enumerate(("Bob", "Cy", "Dee")):
        await react(store, name, "❤️", days=days)
    tomorrow = TODAY + timedelta(days=1)
    assert await store.activity.votes(tomorrow) == [VoteSum(tomorrow + timedelta(days=day), 1) for day in (0, 1)]
    await store.edits.erase_entity(build_message(author="Dee").author.id, LATER)
    assert await store.activity.votes(tomorrow) == [VoteSum(tomorrow, 1)]
    await store.edits.delete_messages(sent.room_id, ["sent-1"], LATER)
    assert await store.activity.votes(TODAY) == []
    assert await store.memories.recent(sent.room_id, kind=MemoryKind.REACTION) == []
