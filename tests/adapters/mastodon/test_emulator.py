"""The page of the emulated Mastodon."""

from adapters.mastodon.emulator import Emulator, MastodonView
from tests.adapters.mastodon.conftest import RunMastodon


async def test_people_write_public_and_direct_posts_on_the_page(run_mastodon: RunMastodon, emulator: Emulator) -> None:
    view = MastodonView(emulator)
    emulator.add_account("kim", is_bot=False)
    assert [person.id for room in view.rooms() for person in room.people] == ["kim"]
    assert [character.id for character in view.bots()] == ["@greenroom_bot"]
    async with run_mastodon() as mastodon:
        await view.send_message("timeline", "kim", "@greenroom_bot hello", "")
        await mastodon.settle()
        answer = emulator.bot_posts[0].id
        await view.send_message("timeline", "kim", "and again", answer)
        await view.send_message("timeline", "kim", "!@greenroom_bot a secret", "")
        await mastodon.settle()
        rooms = {room.external_id for room in await mastodon.store.worlds.rooms()}
    messages = view.messages("timeline")
    assert [message.note for message in messages if not message.is_bot] == ["public", "public", "direct"]
    assert {message.thread for message in messages if not message.is_bot} == rooms
    assert len(emulator.bot_posts) == 3
