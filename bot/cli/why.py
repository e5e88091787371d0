"""Say why messages were answered, or were not, and what that cost; works beside a running bot."""

import argparse
import asyncio
import json
from collections.abc import Sequence
from uuid import UUID

from bot.cli.beside import looked_into
from bot.cli.case import Case, case_of, place_of
from bot.cli.cast import Part, add_character_option, read_part
from bot.cli.costs import By, Costs, costs_of
from bot.cli.exits import Exit, UsageError
from bot.domain.environment import Room
from bot.domain.ledger import Receipt
from bot.inbound.agent_handle import Records
from bot.logs import harmless, logging_to_stderr
from bot.store.protocols import Store
from bot.text import nearest

LAST = 5
DAYS = 7


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument(
        "message",
        metavar="MESSAGE_ID",
        nargs="?",
        help="a message's id, its receipt's, or the platform's own",
    )
    parser.add_argument("--room", metavar="R", help="only of this room: its id or its name")
    parser.add_argument(
        "--last", metavar="N", type=_count, help=f"the last so many messages (default: {LAST})"
    )
    parser.add_argument("--costs", action="store_true", help="instead, what the models have cost, in sums")
    parser.add_argument(
        "--by", choices=[by.value for by in By], help="what the costs are summed by (default: day)"
    )
    parser.add_argument(
        "--days", metavar="N", type=_count, help=f"of so many days, today included (default: {DAYS})"
    )
    add_character_option(parser)
    parser.add_argument("--json", action="store_true", help="print what is known as JSON")


def run(args: argparse.Namespace) -> int:
    """Look it up and tell."""
    if args.message and (args.room or args.last):
        raise UsageError("a message's id needs neither --room nor --last")
    if args.costs and (args.message or args.room or args.last):
        raise UsageError("--costs needs neither a message nor --room nor --last: `--costs --by room`")
    if not args.costs and (args.by or args.days):
        raise UsageError("--by and --days belong to --costs")
    part = read_part(args.character)
    with logging_to_stderr(level=part.settings.get("LOG_LEVEL") or "WARNING", secrets=part.secrets):
        if args.costs:
            return _tell_costs(part, args)
        cases = asyncio.run(_cases(part, args.message, args.room, args.last or LAST))
    if args.json:
        print(json.dumps({"messages": [case.to_json() for case in cases]}, ensure_ascii=False, indent=2))
    elif cases:
        print("\n\n".join("\n".join(map(harmless, case.lines())) for case in cases))
    else:
        print("there has been no message yet")
    return Exit.OK


def _tell_costs(part: Part, args: argparse.Namespace) -> int:
    costs = asyncio.run(_costs(part, args.days or DAYS, By(args.by or By.DAY)))
    if args.json:
        print(json.dumps(costs.to_json(), ensure_ascii=False, indent=2))
    else:
        print("\n".join(map(harmless, costs.lines())))
    return Exit.OK


async def _costs(part: Part, days: int, by: By) -> Costs:
    async with looked_into(part) as store:
        return await costs_of(store, part.blueprint.clock(), days=days, by=by)


async def _cases(part: Part, message: str | None, room: str | None, last: int) -> list[Case]:
    """Look up what is asked for, oldest first."""
    agent_id = part.blueprint.agent_id
    async with looked_into(part) as store:
        records = Records(store)
        if message:
            receipts: Sequence[Receipt] = await _of_message(store, message)
        else:
            rooms = [None] if room is None else [one.id for one in await _rooms(records, room)]
            found = [one for room_id in rooms for one in await records.receipts(room_id=room_id, limit=last)]
            receipts = sorted(found, key=lambda one: one.received_at, reverse=True)[:last]
        return [await case_of(records, receipt, agent_id) for receipt in reversed(receipts)]


async def _of_message(store: Store, name: str) -> Sequence[Receipt]:
    """Find receipts by any name of their message, or by a reply's id; raises UsageError for none."""
    try:
        sought = UUID(name)
    except ValueError:
        sought = None
    if sought is not None:
        reply = (await store.memories.memories([sought])).get(sought)
        for one in (sought, reply.content.in_reply_to if reply else None):
            if one is not None and (receipt := await store.ledger.receipt(one)) is not None:
                return [receipt]
    found = await store.ledger.called(name)
    if not found:
        raise UsageError(f"no message {name!r} is known; `bot why --last 20` lists the latest")
    return found


async def _rooms(records: Records, name: str) -> list[Room]:
    """Find rooms by id, by name, or by what the platform calls them; raises UsageError for none."""
    wanted = name.casefold()
    rooms = await records.rooms()
    found = [one for one in rooms if wanted in (str(one.id), one.name.casefold(), one.external_id.casefold())]
    if not found:
        names = list(dict.fromkeys(one.name or one.external_id for one in rooms))
        near = nearest(name, names)
        latest = ", ".join(place_of(one, one.id) for one in rooms[:5]) or "none yet"
        hint = f"did you mean {near!r}?" if near else f"the latest are: {latest}"
        raise UsageError(f"no room {name!r} is known; {hint}")
    return found


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it must be 1 or more")
    return number
