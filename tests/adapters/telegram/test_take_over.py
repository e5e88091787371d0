"""An administrator takes a Telegram group over, for a person too, and gives it back."""

from bot.domain.ledger import Rule
from bot.testing import model_answer
from tests.adapters.telegram.conftest import OpenHarness


async def test_an_administrator_takes_a_group_over_for_a_person_and_gives_it_back(open_harness: OpenHarness) -> None:
    async with open_harness(lambda request: model_answer("Aye.")) as harness:
        people, held = harness.people, harness.store.take_overs.current
        robin, kim = people.add_user("Robin"), people.add_user("Kim")
        chat = people.add_group("Harbour", robin, kim, owner=kim)
        call = f"@{harness.bot.user['username']}"
        people.say(chat, robin, f"{call} hello")
        assert await harness.wait_texts(1, chat) == ["Aye."]
        people.say(chat, kim, "/take_over Robin a refund")
        await harness.telegram.recorder.wait_until(lambda: bool(held))
        people.say(chat, robin, f"{call} hello?")
        people.say(chat, kim, f"{call} hello?")
        await harness.wait_deliveries()
        rules = [receipt.rule for receipt in await harness.wait_receipts()]
        assert Rule.TAKEN_OVER in rules
        assert rules.count(Rule.MENTION) == 2
        people.say(chat, kim, "/give_back")
        await harness.telegram.recorder.wait_until(lambda: not held)
