from datetime import UTC, datetime

import pytest

from bot import Character
from bot.models import Purpose, TextRequest
from bot.prompts import HistoryLine, render_history
from bot.testing import running_agent
from plugins.offline.models import generate_text

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ADA = Character(name="Ada", topics=("old maps", "night trains"), post_examples=("Rain on the roof.",))


@pytest.mark.anyio
async def test_a_post_differs_from_those_that_the_prompt_shows() -> None:
    lines: list[HistoryLine] = []
    async with running_agent(character=ADA) as harness:
        for _ in range(6):
            prompt = f"# Lately\n{render_history(lines)}\n"
            result = await generate_text(harness.agent, TextRequest(prompt, Purpose.POST))
            post = result.text.removeprefix("<response><post>").removesuffix("</post></response>")
            assert post not in [line.text for line in lines]
            lines.append(HistoryLine(NOON, "Ada", "", post, is_agent=True))
