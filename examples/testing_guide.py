"""Testing guide: a book club, with one component of each kind whose tests the guide shows.

`test_testing_guide.py` in the same folder has the patterns: real components, a scripted model, and nothing mocked.
"""

from typing import Annotated

from pydantic import Field

from bot import (
    ActionResult,
    Agent,
    BotError,
    Component,
    Effect,
    Plugin,
    ProviderResult,
    Service,
    SettingsModel,
    Turn,
    action,
    derived_id,
    evaluator,
    provider,
)
from bot.prompts import Authority
from bot.text import escape_line, shorten

MEMBERSHIP = "BOOK_CLUB_MEMBERSHIP"


class BookClubSettings(SettingsModel):
    """The variables of this plugin; only the operator names a server."""

    CHARACTER_SETTINGS = frozenset()

    book_club_url: str = Field("http://127.0.0.1:8080/next", description="Where the title of the next book is.")


class Shelf(Service):
    """Knows the next book: asks a server for it."""

    capability = "know which book the club reads next"

    def __init__(self, agent: Agent) -> None:
        super().__init__(agent)
        self.url = agent.settings.load(BookClubSettings).book_club_url
        self.last = "Emma"

    async def find_next(self) -> str:
        """Return the title of the next book. Raises a BotError where the server does not answer."""
        page = await self.agent.fetcher.get(self.url, max_bytes=1_000, trusted_origin=self.url)
        self.last = page.text().strip() or self.last
        return self.last


async def is_no_member(turn: Turn) -> bool:
    """Return whether the author can join: JOIN_CLUB is not offered to members."""
    return not await turn.agent.store.entities.components(turn.author.id, MEMBERSHIP)


@action(
    "JOIN_CLUB",
    "Make the person a member of the book club.",
    effect=Effect.IDEMPOTENT,
    when=is_no_member,
    authority=Authority.named("join", targets=()),
)
async def join_club(turn: Turn, genre: Annotated[str, "What they like to read", Field(max_length=60)]) -> ActionResult:
    """Store it about the person; the same again changes nothing."""
    component_id = derived_id(turn.author.id, MEMBERSHIP)
    member = Component(component_id, turn.author.id, MEMBERSHIP, {"genre": genre, "praise": 0})
    await turn.agent.store.entities.save_component(member)
    await turn.reply(f"Welcome, {turn.author.name}!")
    return ActionResult(text="is a member now", data={"genre": genre})


@action("NEXT_BOOK", "Tell which book the club reads next.", effect=Effect.PURE)
async def next_book(turn: Turn) -> ActionResult:
    """Ask the shelf; fall back to the last book where it does not answer."""
    shelf = turn.agent.services[Shelf]
    try:
        title, is_new = await shelf.find_next(), True
    except BotError:
        title, is_new = shelf.last, False
    await turn.reply(f"{'Next' if is_new else 'As far as I know'}: {title}.")
    return ActionResult(text=f"the next book is {title}", data={"is_new": is_new})


@provider("MEMBERSHIP", "Whether the person is a member of the book club, and what they like to read.")
async def membership(turn: Turn) -> ProviderResult:
    """Return nothing for others; the genre is the person's own word."""
    members = await turn.agent.store.entities.components(turn.author.id, MEMBERSHIP)
    if not members:
        return ProviderResult(authors=())
    genre = str(members[0].data["genre"])
    text = f"{turn.author.name} is a member of the book club and likes {escape_line(shorten(genre, 60))}."
    return ProviderResult(text=text, values={"genre": genre}, authors=(turn.author.id,))


def is_praise(turn: Turn) -> bool:
    """Return whether COUNT_PRAISE has anything to do."""
    return "love" in turn.message.content.text.lower()


@evaluator("COUNT_PRAISE", "Counts how often a member has praised a book.", when=is_praise)
async def count_praise(turn: Turn) -> None:
    """Count it after the reply, so that no user waits for it."""
    for member in await turn.agent.store.entities.components(turn.author.id, MEMBERSHIP):
        data = {**member.data, "praise": member.data["praise"] + 1}
        await turn.agent.store.entities.save_component(Component(member.id, member.entity_id, MEMBERSHIP, data))


plugin = Plugin(
    "testing_guide",
    "Leads a book club.",
    actions=[join_club, next_book],
    providers=[membership],
    evaluators=[count_praise],
    services=[Shelf],
    settings=BookClubSettings,
)
