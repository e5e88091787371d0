"""A talk in which the memory of a character is tried, the same on every platform."""

from collections.abc import Awaitable, Callable

from benchmarks.remembering import memory_section, note_place
from bot.models import Purpose, TextRequest
from bot.testing import model_answer
from plugins.bootstrap.providers.conversation import SAID_HEADING

SETTINGS = {"CONVERSATION_LENGTH": "4"}  # reflection after every message
SMALL_TALK = ("the weather is fine", "so it is", "lovely")
Say = Callable[[int, str], Awaitable[None]]  # a person's number and what they say to the character


class RememberingModel:
    """Notes where people live, asks for RECALL, and keeps the prompts of its replies."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, request: TextRequest) -> str:
        if request.purpose is Purpose.REFLECTION:
            return note_place(request)
        self.prompts.append(request.prompt)
        return model_answer("I see.", providers=("RECALL",))

    @property
    def memory(self) -> str:
        """What MEMORY showed in the last prompt."""
        return memory_section(self.prompts[-1])

    @property
    def recalled(self) -> list[str]:
        """The lines that RECALL showed in the last prompt."""
        _, _, rest = self.prompts[-1].partition(SAID_HEADING)
        return rest.partition("\n\n")[0].splitlines()[1:]


async def check_memory(model: RememberingModel, say: Say, say_in_private: Say) -> None:
    """Check that a correction counts, that two people of one nickname stay two, and that what is private stays so."""
    await say(0, "I live in Townold")
    await say(0, SMALL_TALK[0])
    await say(0, "no, I moved to Townnew")
    await say(0, SMALL_TALK[1])
    await say(0, "where do I live?")
    assert "Townnew" in model.memory
    assert "Townold" not in model.memory

    await say(0, "just call me Bear, and I play the harp")
    await say(1, "everyone calls me Bear, and I play the drums")
    for text in SMALL_TALK:
        await say(1, text)
    await say(1, "What does Bear play?")
    [harp] = [line for line in model.recalled if "harp" in line]
    [drums] = [line for line in model.recalled if "drums" in line]
    assert harp.partition(",")[0] != drums.partition(",")[0]  # who said it, with an id

    await say_in_private(0, "I live in Townhidden, do not tell")
    await say_in_private(0, SMALL_TALK[2])
    await say_in_private(0, "where do I live?")
    assert "Townhidden" in model.memory
    await say(0, "where do I live?")
    assert "Townhidden" not in model.prompts[-1]
