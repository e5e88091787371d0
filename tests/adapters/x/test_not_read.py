"""A person on X who is not read, by the operator's choice: there are no commands on X."""

from pathlib import Path

import pytest

from adapters.x.emulator import Emulator
from bot import Entity
from bot.domain.hiding import HIDDEN_TEXT
from bot.domain.ledger import Rule
from bot.testing import model_answer
from tests.adapters.x.conftest import RunX
from tests.canaries import Canaries, find_canaries, open_file


@pytest.mark.long
async def test_nothing_is_kept_of_what_a_person_writes_who_is_not_read(
    run_x: RunX, emulator: Emulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    canaries, prompts = Canaries(), list[str]()

    def answer(request: object) -> str:
        prompts.append(str(request))
        return model_answer("Noted.")

    async with open_file(tmp_path) as store:
        async with run_x(answer, store=store) as harness:
            asked = emulator.say("robin", "@greenroom_bot hello")
            await harness.poll()
            robin = (await harness.receipts())[asked].author_id
            await harness.agent_runtime.handle.operations.ignore_person(robin, is_ignored=True, source="a test")
            hidden = [emulator.say("robin", f"@greenroom_bot {canaries.write(20)}") for _ in range(48)]
            hidden.append(emulator.say("robin", f"@greenroom_bot {canaries.write(20)}", reply_to_id=hidden[0]))
            thread = emulator.say("robin", canaries.write(20))
            asking = emulator.say("kim", "@greenroom_bot is that so?", reply_to_id=thread)
            quoting = emulator.say("kim", "@greenroom_bot look at this", quoted_id=hidden[0])
            await harness.poll()
            await harness.poll()
            receipts = await harness.receipts()
            messages = await store.memories.memories([receipts[asking].memory_id, receipts[quoting].memory_id])
        shown = [caplog.text, prompts, messages, await store.ledger.unreadable_events()]
        person = Entity(robin, "x", "")
        assert await find_canaries(tmp_path, store, person, shown) == set()
    assert {receipts[post_id].rule for post_id in hidden} == {Rule.NOT_READ}
    assert receipts[thread].rule == Rule.NOT_READ
    assert receipts[asking].rule == receipts[quoting].rule == "mention"
    quotations = [message.content.quotation for message in messages.values()]
    assert [quotation.text for quotation in quotations if quotation is not None] == [HIDDEN_TEXT]
    assert canaries.count >= 1_000
