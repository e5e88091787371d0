"""REMIND_ME, LIST_REMINDERS and CANCEL_REMINDER, and the commands with which people list and cancel their own."""

from datetime import UTC, timedelta
from typing import Annotated

from pydantic import Field

from bot import ActionResult, BotError, CommandContext, Effect, ExampleLine, Task, Turn, action, command, derived_id
from bot.prompts import Authority
from bot.text import english_text, user_text
from plugins.reminders.reminder import (
    MAX_DAYS,
    ReminderSettings,
    Repeat,
    build_task,
    describe,
    describe_all,
    find_own_time_zone,
    list_own,
    parse_wall_time,
)


@command("reminders", english_text("commands.reminders.description"))
async def show_reminders(context: CommandContext) -> str:
    """List the reminders of the sender: in a room those that were asked for there."""
    sent = context.invocation
    tasks = await list_own(context.agent, sent.author.id, sent.room)
    if not tasks:
        return user_text("reminders.nothing")
    zone = await find_own_time_zone(context.agent, sent.author.id, sent.world) or UTC
    return f"{describe_all(tasks, zone)}\n{user_text('commands.reminders.how')}"


@command("cancel-reminder", english_text("commands.cancel_reminder.description"))
async def cancel(context: CommandContext, number: Annotated[int, "Its number, as /reminders lists it"]) -> str:
    """Cancel a reminder of the sender."""
    sent = context.invocation
    tasks = await list_own(context.agent, sent.author.id, sent.room)
    if not 1 <= number <= len(tasks):
        return user_text("commands.cancel_reminder.unknown", number=number)
    await context.agent.store.tasks.delete_task(tasks[number - 1].id)
    zone = await find_own_time_zone(context.agent, sent.author.id, sent.world) or UTC
    return user_text("commands.cancel_reminder.done", reminder=describe(tasks[number - 1], zone))


MAX_LENGTH = 300
ASK_TIME_ZONE = (
    "Their time zone is not known. Ask them once where they are, keep the answer with UPDATE_CONTACT "
    "(kind timezone, such as Europe/Berlin), and set the reminder then."
)
# Words by which people ask for a reminder, or for the end of one; a request in other words is confirmed.
REMIND = (
    *("remind", "reminder", "reminders", "alarm", "wake me", "let me forget", "erinnere", "erinner", "erinnerung"),
    *(
        "weck mich",
        "rappelle",
        "rappelez",
        "rappel",
        "recuérdame",
        "recordatorio",
        "avísame",
        "ricordami",
        "promemoria",
    ),
    *("lembra", "lembre", "lembrete", "напомни", "напоминание", "przypomnij", "herinner", "提醒", "リマインド", "알림"),
)
CANCEL = (
    *("cancel", "delete", "remove", "stop", "forget", "lösch", "lösche", "streich", "streiche", "annule", "supprime"),
    *(
        "cancela",
        "borra",
        "quita",
        "annulla",
        "elimina",
        "remova",
        "отмени",
        "удали",
        "取消",
        "删除",
        "キャンセル",
        "취소",
    ),
)


@action(
    "REMIND_ME",
    "Remind the user of something later.",
    similes=["SET_REMINDER", "CREATE_REMINDER", "REMINDER"],
    effect=Effect.IDEMPOTENT,
    authority=Authority.named(*REMIND, targets=()),
    examples=[
        [
            ExampleLine("{{name1}}", "remind me on Friday at nine to call Robin"),
            ExampleLine("{{agentName}}", "I will.", ("REMIND_ME",)),
        ]
    ],
)
async def remind_me(
    turn: Turn,
    what: Annotated[str, "Of what, in a few words", Field(min_length=1, max_length=MAX_LENGTH)],
    at: Annotated[str, "The user's local time: 2026-11-29 09:00, Friday 09:00, tomorrow 09:00 or 09:00"] = "",
    in_minutes: Annotated[int, "Instead of at: in how many minutes", Field(ge=0, le=MAX_DAYS * 1440)] = 0,
    repeat: Annotated[Repeat, "How it repeats; empty for once"] = "",
    private: Annotated[bool, "Whether to remind in private, if the user asks for that"] = False,
) -> ActionResult:
    """Store a reminder for the author of the message; in the same turn the same one exists once."""
    agent, person = turn.agent, turn.author
    if len({item.author.id for item in turn.inputs}) > 1:
        return _refuse("several people have written: ask who is to be reminded")
    if bool(at.strip()) == bool(in_minutes):
        return _refuse("a time is needed: either at or in_minutes")
    zone = await find_own_time_zone(agent, person.id, turn.world)
    if zone is None and (at or repeat):
        return _refuse(ASK_TIME_ZONE)
    now = agent.clock().astimezone(zone or UTC)
    try:
        due = parse_wall_time(at, now) if at.strip() else now + timedelta(minutes=in_minutes)
    except ValueError as error:
        return _refuse(str(error))
    limit = agent.settings.load(ReminderSettings).reminders
    if len(await agent.store.tasks.tasks(name="REMINDER", entity_id=person.id)) >= limit:
        return _refuse(f"they have {limit} reminders already: one must be cancelled first")
    if private and not await _can_write_to(turn):
        return _refuse("I cannot write to them in private: they must write to me there first")
    what = " ".join(what.split())
    id_ = derived_id(turn.id, "reminder", what, due.isoformat(), repeat)
    task = build_task(
        id_, what, person, turn.room, due, repeat=repeat, is_private=private, is_wall=bool(at.strip() or repeat)
    )
    task = await agent.schedule(task)
    return ActionResult(text=f"The reminder is set: {describe(task, now.tzinfo or UTC)}", authors=(person.id,))


@action(
    "LIST_REMINDERS",
    "List the user's reminders.",
    similes=["SHOW_REMINDERS", "MY_REMINDERS"],
    effect=Effect.PURE,
    authority=Authority.harmless("it lists the asker's own, in a room only those of the room"),
)
async def list_reminders(turn: Turn) -> ActionResult:
    """Return the reminders of the author: in a room those that were asked for there."""
    tasks = await list_own(turn.agent, turn.author.id, turn.room)
    zone = await find_own_time_zone(turn.agent, turn.author.id, turn.world) or UTC
    return ActionResult(text=describe_all(tasks, zone) or user_text("reminders.nothing"), authors=(turn.author.id,))


@action(
    "CANCEL_REMINDER",
    "Cancel one of the user's reminders.",
    similes=["DELETE_REMINDER", "REMOVE_REMINDER"],
    effect=Effect.IDEMPOTENT,
    authority=Authority.named(*CANCEL, targets=()),
)
async def cancel_reminder(
    turn: Turn, which: Annotated[str, "Its number in the list, or words of it", Field(max_length=MAX_LENGTH)]
) -> ActionResult:
    """Delete the one reminder of the author that is meant."""
    tasks = await list_own(turn.agent, turn.author.id, turn.room)
    zone = await find_own_time_zone(turn.agent, turn.author.id, turn.world) or UTC
    found = find_meant(tasks, which)
    if len(found) != 1:
        listed = describe_all(tasks, zone) or user_text("reminders.nothing")
        return _refuse(f"{len(found)} reminders are meant by that; say which number:\n{listed}")
    await turn.agent.store.tasks.delete_task(found[0].id)
    return ActionResult(text=f"The reminder is cancelled: {describe(found[0], zone)}", authors=(turn.author.id,))


def find_meant(tasks: list[Task], which: str) -> list[Task]:
    """Return the reminders that a number, counted from 1, or words name."""
    which = which.strip().removeprefix("#").casefold()
    if which.isdecimal():
        return tasks[int(which) - 1 : int(which)] if int(which) else []
    return [task for task in tasks if which and which in task.description.casefold()]


async def _can_write_to(turn: Turn) -> bool:
    try:
        return await turn.agent.find_direct(turn.author.id) is not None
    except BotError:  # the platform refuses it
        return False


def _refuse(reason: str) -> ActionResult:
    return ActionResult(success=False, text=reason, error=reason, authors=())
