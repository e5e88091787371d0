"""What the page shows of the emulated posts, and what a person does there."""

from collections.abc import Mapping, Sequence

from adapters.x.emulator.state import EmulatedWorld, Forbidden, Made
from bot.testing import Person, Place, Said

TIMELINE = "timeline"
HINT = "Mention a character, or reply to it. It looks every few seconds whether somebody has."


class XScene:
    """One timeline of all posts; one is anybody who is no character."""

    platform = "X"
    longest = 1000

    def __init__(self, world: EmulatedWorld, bots: Mapping[str, str]) -> None:
        self._world, self._bots = world, bots

    def places(self) -> Sequence[Place]:
        """List the one place there is."""
        people = tuple(
            Person(number, f"@{name}")
            for number, name in self._world.people.items()
            if number not in self._bots
        )
        return [Place(TIMELINE, "all posts", people, HINT)]

    def bots(self) -> Sequence[Person]:
        """List the characters, as one mentions them."""
        handles = [f"@{name}" for name in self._bots.values()]
        return [Person(one, one) for one in handles]

    def said(self, place: str) -> Sequence[Said]:
        """List the posts there are."""
        return [self._said(one) for one in self._world.posts.values() if not one.is_deleted]

    async def say(self, place: str, person: str, text: str, answers: str) -> str:
        """Post something."""
        try:
            self._world.post(person, text, answers=answers)
        except Forbidden as error:
            return str(error)
        return ""

    async def press(self, place: str, person: str, message: str, button: str) -> None:
        """Press nothing: posts have no buttons."""

    def _said(self, made: Made) -> Said:
        above = self._world.posts.get(made.answers)
        notes = [f"in answer to @{self._world.people[above.author_id]}"] if above else []
        counted = {"like": made.likes, "repost": made.reposts, "picture": made.pictures}
        notes += [f"{len(one)} {name}{'s' * (len(one) > 1)}" for name, one in counted.items() if one]
        notes += ["quotes a post"] if made.quotes else []
        return Said(
            made.id,
            f"@{self._world.people[made.author_id]}",
            made.text,
            is_bot=made.author_id in self._bots,
            note=", ".join(notes),
        )
