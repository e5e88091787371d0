"""One bot of Telegram's: the library's `Bot`, which asks for updates in a way that loses none."""

from typing import Any

from telegram import Bot
from telegram.error import TelegramError

from adapters.telegram.config import Limits, TelegramSettings
from adapters.telegram.wire import FILES, METHODS, Connector, TelegramRequest

UPDATES = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "callback_query",
    "message_reaction",
    "my_chat_member",
    "chat_member",
)
MOST_UPDATES = 100  # that Telegram gives at once


class Account(Bot):
    """The library's Bot, without the token: only what carries its requests knows that."""

    def __init__(
        self, settings: TelegramSettings, limits: Limits, connector: Connector | None = None
    ) -> None:
        assert settings.telegram_bot_token is not None, "a bot without a token is not opened"
        address, token = settings.telegram_api_base_url, settings.telegram_bot_token.get_secret_value()
        secret = settings.telegram_webhook_secret
        words = {"secret_token": secret.get_secret_value()} if secret is not None else {}
        request, updates = (
            TelegramRequest(address, token, limits, most, hidden={"setWebhook": words}, connector=connector)
            for most in (limits.most_bytes, limits.most_update_bytes)
        )
        super().__init__(
            f"{settings.account}:hidden",
            base_url=lambda token: METHODS,
            base_file_url=lambda token: FILES,
            request=request,
            get_updates_request=updates,
        )

        self._number = settings.account

    @property
    def number(self) -> str:
        """The bot's own id, which is no secret."""
        return self._number

    async def open(self) -> None:
        """Open the sessions; unlike the library's `initialize`, ask nothing."""
        for request in self._request:
            await request.initialize()

    async def close_sessions(self) -> None:
        """Close the sessions."""
        for request in self._request:
            await request.shutdown()

    async def updates(self, offset: int | None, wait: int, grace: float) -> list[Any]:
        """Ask for updates and give them as they came: one that cannot be read must not cost the others."""
        data = {"offset": offset, "timeout": wait, "limit": MOST_UPDATES, "allowed_updates": list(UPDATES)}
        found = await self._post("getUpdates", data, read_timeout=wait + grace)
        return found if isinstance(found, list) else []

    async def download(self, file_id: str) -> bytes:
        """Read a file that somebody has sent; raises TelegramError where it cannot be had."""
        found = await self._post("getFile", {"file_id": file_id})
        path = found.get("file_path") if isinstance(found, dict) else None
        if not isinstance(path, str):
            raise TelegramError("Telegram does not say where the file is")
        return await self._request[1].retrieve(f"{FILES}/{path}")
