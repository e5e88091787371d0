"""`bot why`, costs included."""

import argparse
import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from bot.cli.characters import Part, add_character_option, read_part
from bot.cli.message_report import Case, case_of, place_of, priced
from bot.cli.process.exit_codes import Exit, UsageError
from bot.cli.running_bot import looked_into
from bot.domain.costs import Spending, summed
from bot.domain.environment import Room
from bot.domain.ledger import Receipt
from bot.inbound.agent_handle import Records
from bot.logs import harmless, logging_to_stderr
from bot.store.protocols import Store
from bot.text import nearest, shorten

WIDTH = 40
NOBODY = "(nobody: tasks, posts)"


class By(StrEnum):
    """What sums are made by."""

    DAY = "day"
    ROOM = "room"
    PERSON = "person"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class Costs:
    """The sums of some days; `sums` are by `by`, each with its name, the dearest first but days in order."""

    days: int
    by: By
    total: Spending
    sums: Sequence[tuple[str, Spending]]

    def lines(self) -> Iterator[str]:
        """Tell them to a person."""
        period = "today (UTC)" if self.days == 1 else f"the last {self.days} days (UTC)"
        yield f"{period}: {told(self.total)}"
        for name, one in self.sums:
            yield f"  {shorten(name, WIDTH):<{WIDTH}}  {told(one)}"
        if self.total.unpriced:
            yield "what has no price is not in the dollars: MODEL_PRICES gives one, `name=in/out`"
        if self.total.estimated:
            yield f"the tokens of {self.total.estimated} calls are estimated: their provider did not count"

    def to_json(self) -> dict[str, Any]:
        """Give them as JSON."""
        sums = [{"name": name, **self._id(one), **one.to_json()} for name, one in self.sums]
        return {"days": self.days, "by": self.by.value, "total": self.total.to_json(), "sums": sums}

    def _id(self, one: Spending) -> Mapping[str, str | None]:
        ids = {By.ROOM: one.room_id, By.PERSON: one.person_id}
        found = ids.get(self.by)
        return {"id": str(found) if found else None} if self.by in ids else {}


async def costs_of(store: Store, now: datetime, *, days: int, by: By) -> Costs:
    """Sum up what was spent today and on the days before."""
    today = now.date()
    spent = await store.spending.spent(today - timedelta(days=days - 1), today)
    total = summed(spent, lambda one: None).get(None, Spending(today, ""))
    keys = {
        By.DAY: lambda one: one.day,
        By.ROOM: lambda one: one.room_id,
        By.PERSON: lambda one: one.person_id,
    }
    sums = list(summed(spent, keys.get(by, lambda one: one.model)).values())
    sums.sort(key=lambda one: (one.day if by is By.DAY else today, -one.cost, -one.tokens))
    names = await _names(store, sums, by)
    return Costs(days, by, total, list(zip(names, sums, strict=True)))


async def _names(store: Store, sums: Sequence[Spending], by: By) -> list[str]:
    if by is By.ROOM:
        rooms = {room.id: room for room in await store.worlds.rooms()}
        return [place_of(rooms.get(one.room_id), one.room_id) if one.room_id else NOBODY for one in sums]
    if by is By.PERSON:
        ids = {one.person_id for one in sums if one.person_id}
        people = await store.entities.entities(ids)
        known: dict[UUID, str] = {key: f"{one.name or key} ({one.platform})" for key, one in people.items()}
        return [known.get(one.person_id, str(one.person_id)) if one.person_id else NOBODY for one in sums]
    return [one.day.isoformat() if by is By.DAY else one.model for one in sums]


def told(one: Spending) -> str:
    """Tell a sum to a person."""
    return ", ".join(_told(one))


def _told(one: Spending) -> Iterator[str]:
    is_unknown = 0 < one.unpriced == one.calls - one.failed
    yield priced(None if is_unknown else one.cost)
    yield "1 call" if one.calls == 1 else f"{one.calls:,} calls"
    if one.failed:
        yield f"{one.failed:,} failed"
    if one.unpriced and not is_unknown:
        yield f"{one.unpriced:,} without a price"
    yield f"{one.tokens_in:,} tokens in" + (f" ({one.tokens_cached:,} cached)" if one.tokens_cached else "")
    yield f"{one.tokens_out:,} out"


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
