"""Telegram adapter: private chats, groups, channels and forum topics."""

from adapters.telegram.config import TelegramSettings
from bot.platform import AdapterSpec, LazyImport

spec = AdapterSpec(
    "telegram",
    LazyImport("adapters.telegram.adapter:open_telegram"),
    TelegramSettings,
    needs=("TELEGRAM_BOT_TOKEN",),
    extra="telegram",
    libraries=("telegram", "markdown_it"),
    check=LazyImport("adapters.telegram.adapter:check_account"),
    emulator=LazyImport("adapters.telegram.emulator:start_emulator"),
    faces_setting="TELEGRAM_FACES",
    setup_steps=(
        "In Telegram open https://t.me/BotFather and press Start.",
        "Send /newbot, then a name, then a username that ends in bot.",
        "Copy the token from the answer: digits, a colon, letters.",
    ),
)
