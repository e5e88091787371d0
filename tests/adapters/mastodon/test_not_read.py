"""A person on Mastodon who is not read, by the operator's choice: there are no commands on Mastodon."""

from pathlib import Path

import pytest

from adapters.mastodon.emulator import Emulator
from bot import Entity
from bot.domain.ledger import Rule
from bot.testing import model_answer
from tests.adapters.mastodon.conftest import RunMastodon
from tests.canaries import Canaries, find_canaries, open_file


@pytest.mark.long
async def test_nothing_is_kept_of_what_a_person_writes_who_is_not_read(
    run_mastodon: RunMastodon, emulator: Emulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    canaries, prompts = Canaries(), list[str]()

    def answer(request: object) -> str:
        prompts.append(str(request))
        return model_answer("Noted.")

    async with open_file(tmp_path) as store:
        async with run_mastodon(answer, store=store) as mastodon:
            asked = emulator.say("robin", "@greenroom_bot hello")
            await mastodon.settle()
            robin = (await mastodon.receipt_of(asked)).author_id
            await mastodon.handle.operations.ignore_person(robin, is_ignored=True, source="a test")
            hidden = [
                emulator.say("robin", f"@greenroom_bot {canaries.write(20)}", warning=canaries.write(3))
                for _ in range(10)
            ]
            hidden.append(emulator.say("robin", f"@greenroom_bot {canaries.write(20)}", visibility="direct"))
            thread = emulator.say("robin", canaries.write(20))
            asking = emulator.say("kim", "@greenroom_bot is that so?", reply_to_id=thread)
            quoting = emulator.say("kim", "@greenroom_bot and that?", reply_to_id=thread, visibility="direct")
            emulator.edit(hidden[0], f"@greenroom_bot {canaries.write(20)}")
            emulator.react("robin", "favourite", emulator.bot_posts[0].id)
            await mastodon.settle()
            receipts = {post_id: await mastodon.receipt_of(post_id) for post_id in (*hidden, thread, asking, quoting)}
            messages = await store.memories.memories([receipts[asking].memory_id, receipts[quoting].memory_id])
        shown = [caplog.text, prompts, messages, await store.ledger.unreadable_events()]
        assert await find_canaries(tmp_path, store, Entity(robin, "mastodon", ""), shown) == set()
    assert {receipts[post_id].rule for post_id in (*hidden, thread)} == {Rule.NOT_READ}
    assert receipts[asking].rule == "mention"
