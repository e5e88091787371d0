"""Reminders plugin: reminds people of what they ask for, once or repeatedly."""

from bot import Plugin
from plugins.reminders.actions import cancel, cancel_reminder, list_reminders, remind_me, show_reminders
from plugins.reminders.reminder import ReminderSettings, deliver, follow_time_zone

plugin = Plugin(
    "reminders",
    "Reminds people of what they ask for, once or repeatedly.",
    actions=[remind_me, list_reminders, cancel_reminder],
    commands=[show_reminders, cancel],
    listeners=[follow_time_zone],
    workers=[deliver],
    settings=ReminderSettings,
)
