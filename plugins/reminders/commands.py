"""/reminders and /cancel-reminder: a person lists and cancels their own reminders."""

from datetime import UTC
from typing import Annotated

from bot import CommandContext, command
from bot.text import english_text, user_text
from plugins.reminders.reminder import describe, describe_all, find_own_time_zone, list_own


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
