"""Telegram as a platform: private chats, groups, channels and the topics of forums."""

from adapters.telegram.adapter import open_telegram
from adapters.telegram.checkup import check_account
from adapters.telegram.config import TelegramSettings
from bot import AdapterSpec

adapter = AdapterSpec(
    "telegram",
    open_telegram,
    TelegramSettings,
    needs=("TELEGRAM_BOT_TOKEN",),
    extra="telegram",
    check=check_account,
    emulator="adapters.telegram.emulator",
)
