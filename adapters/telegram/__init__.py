"""Telegram as a platform: private chats, groups, channels and the topics of forums."""

from adapters.telegram.config import TelegramSettings
from bot.platform import AdapterSpec, Deferred

spec = AdapterSpec(
    "telegram",
    Deferred("adapters.telegram.adapter:open_telegram"),
    TelegramSettings,
    needs=("TELEGRAM_BOT_TOKEN",),
    extra="telegram",
    libraries=("telegram", "markdown_it"),
    check=Deferred("adapters.telegram.checks:check_account"),
    emulator="adapters.telegram.emulator",
)
