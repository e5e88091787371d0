"""List rooms and their instructions; take one over, give it back, or write there as the bot's account."""

from typing import Annotated, Any
from uuid import UUID

import typer

from bot.cli.characters import CharacterConfig
from bot.cli.options import Output, examples, new_group
from bot.cli.process.shutdown import Exit, UsageError, print_line
from bot.cli.running_bot import SOURCE, choose_person, choose_room, read_store, run_connected
from bot.domain.environment import find_take_over
from bot.domain.instructions import INSTRUCTION_KEYS
from bot.errors import SettingError
from bot.operate.results import name_room
from bot.operate.rooms import InstructionBody, RoomInstructionsBody, TakeOverBody
from bot.store.protocols import Store

rooms_app = new_group(
    "List rooms and their instructions; take one over, give it back, or write there as the bot's account."
)
MAX_SHOWN_ROOMS = 200
RoomText = Annotated[
    str, typer.Argument(metavar="ROOM", help="A room: its id, the platform's id of it, or its exact name.")
]
PersonText = Annotated[str, typer.Option("--person", metavar="PERSON", help="Only this person: id, account or name.")]
KeyText = Annotated[str, typer.Argument(metavar="KEY", help=f"Which instruction: {', '.join(INSTRUCTION_KEYS)}.")]
OfWorld = Annotated[bool, typer.Option("--world", help="For all rooms of its world.")]
NameText = Annotated[str, typer.Option("--name", metavar="NAME", help="Your name, as others read it.")]


@rooms_app.command("list", epilog=examples("bot rooms list", "bot rooms list --json"))
def list_rooms(config: CharacterConfig) -> Output:
    """List the rooms, the most recently active first, and who has taken them over."""
    rooms = read_store(config, _load_rooms)
    rows = [(room["id"], f"{room['name']} ({room['platform']})", room["taken_over"]) for room in rooms]
    lines = [" ".join(filter(None, row)) for row in rows] or ["there are no rooms"]
    return Output({"rooms": rooms}, lines, ("room", "name", "taken over"), rows)


@rooms_app.command(
    "take-over", epilog=examples("bot rooms take-over lobby --name Mia", "bot rooms take-over 42 --person Ada")
)
def take_over(
    config: CharacterConfig,
    room: RoomText,
    person: PersonText = "",
    name: NameText = "",
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.")] = "",
) -> Output:
    """Answer in place of the character in a room, or one person there: it is silent, and reads on."""
    room_id, person_id = _find_ids(config, room, person)
    held = run_connected(
        config, lambda operations: operations.take_over(room_id, person_id, name=name, reason=reason, source=SOURCE)
    )
    line = f"{room}: taken over by {held.name} since {held.since:%Y-%m-%d %H:%M} UTC"
    return Output(held, [line], indent=None)


@rooms_app.command("give-back", epilog=examples("bot rooms give-back lobby", "bot rooms give-back 42 --person Ada"))
def give_back(config: CharacterConfig, room: RoomText, person: PersonText = "") -> Output:
    """End a take-over: the character answers again in a room, or one person there."""
    room_id, person_id = _find_ids(config, room, person)
    ended: list[TakeOverBody] = run_connected(
        config, lambda operations: operations.give_back(room_id, person_id, source=SOURCE)
    )
    lines = [f"{room}: given back; {item.name} had taken over" for item in ended] or [f"{room}: nobody has taken over"]
    return Output({"ended": ended}, lines)


@rooms_app.command("show", epilog=examples("bot rooms show lobby", "bot rooms show lobby --json"))
def show(config: CharacterConfig, room: RoomText) -> Output:
    """Show the instructions of a room, and who set them."""
    room_id, _ = _find_ids(config, room)
    rooms = config.agent_config.character.rooms
    return _show_instructions(run_connected(config, lambda operations: operations.instructions(room_id, rooms)))


@rooms_app.command(
    "set", epilog=examples("bot rooms set lobby language German", "bot rooms set lobby budget 0.50 --world")
)
def set_instruction(
    config: CharacterConfig,
    room: RoomText,
    key: KeyText,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Its new value.")],
    of_world: OfWorld = False,
) -> Output:
    """Set an instruction of a room, or of its world."""
    room_id, _ = _find_ids(config, room)
    rooms = config.agent_config.character.rooms
    try:
        changed = run_connected(
            config,
            lambda operations: operations.set_instructions(
                room_id, {key: value}, rooms, of_world=of_world, source=SOURCE
            ),
        )
    except SettingError as error:
        raise UsageError(str(error)) from None
    return _show_instructions(changed)


@rooms_app.command("unset", epilog=examples("bot rooms unset lobby language"))
def unset_instruction(config: CharacterConfig, room: RoomText, key: KeyText, of_world: OfWorld = False) -> Output:
    """Remove an instruction that was set for a room, or for its world."""
    return set_instruction(config, room, key, "", of_world)


@rooms_app.command("write", epilog=examples("bot rooms write lobby 'We are on it.' --name Mia"))
def write(
    config: CharacterConfig,
    room: RoomText,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What you write.")],
    name: NameText = "",
) -> int:
    """Write in a room as the bot's account, marked as yours; the bot must run."""
    room_id, _ = _find_ids(config, room)
    said = run_connected(config, lambda operations: operations.write_as_agent(room_id, text, name=name))
    print_line(f"{room}: written" if said.message_id else f"{room}: nothing of it could be sent")
    return Exit.OK


def _show_instructions(found: RoomInstructionsBody) -> Output:
    def describe(item: InstructionBody) -> str:
        if item.origin == "file":
            return f"the file, {item.place}"
        return f"{item.origin}, by {item.by or 'an operator'}{f' on {item.at:%Y-%m-%d}' if item.at else ''}"

    rows = [(item.key, item.value, describe(item)) for item in found.values]
    lines = [f"{key}: {value} ({origin})" for key, value, origin in rows] or [f"nothing is set for {found.room}"]
    return Output(found, lines, ("key", "value", "set by"), rows)


async def _load_rooms(store: Store) -> list[dict[str, Any]]:
    held = store.take_overs.current
    rooms = (await store.worlds.rooms())[:MAX_SHOWN_ROOMS]
    return [
        {
            "id": str(room.id),
            "name": name_room(room),
            "platform": room.platform,
            "external_id": room.external_id,
            "taken_over": str(item) if (item := find_take_over(held, room.id, None)) else "",
        }
        for room in rooms
    ]


def _find_ids(config: CharacterConfig, room: str, person: str = "") -> tuple[UUID, UUID | None]:
    return read_store(config, lambda store: _find_place(store, room, person, config.agent_id))


async def _find_place(store: Store, text: str, person: str, agent_id: UUID) -> tuple[UUID, UUID | None]:
    """Return the ids of a room and of a person that are named by texts. Raises UsageError."""
    room = await choose_room(store, text)
    return room.id, (await choose_person(store, person, agent_id)).id if person else None
