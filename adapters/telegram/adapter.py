"""The Telegram adapter: one bot per character of the process, or one that several share.

The checks of `bot doctor`: token, privacy mode, competing webhooks.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Self
from urllib.parse import urlsplit

from telegram import User, WebhookInfo
from telegram.error import InvalidToken, TelegramError

from adapters.telegram.account import TelegramAccount
from adapters.telegram.client import PARSE_ERRORS, TOKEN_REFUSED, BotClient, error_text
from adapters.telegram.config import Limits, TelegramSettings, read_settings
from adapters.telegram.incoming import FORUM_KEY, PLATFORM, ChatTarget, derive_room_id
from adapters.telegram.outgoing import split_reply
from adapters.telegram.polling import Webhook, WebhookServer
from bot import ChannelType, ConfigError, Content, Room, Settings
from bot.platform import (
    AccountAdapter,
    AgentHandle,
    CursorReader,
    Delivery,
    FetchError,
    ReactionSet,
    TimeSource,
    share_accounts,
)
from bot.store import CheckReport

PRIVATE_DRAFT_INTERVAL, GROUP_DRAFT_INTERVAL = 1.0, 3.0


class TelegramAdapter(AccountAdapter[TelegramAccount]):
    """Connects the bots of all characters while it is entered as a context manager."""

    platform = PLATFORM
    can_edit = True
    shows_choices = True
    sends_response_files = True
    voice_type = "audio/ogg"  # with Opus inside it is a voice message

    def __init__(
        self, handles: Sequence[AgentHandle], *, limits: Limits | None = None, time_source: TimeSource | None = None
    ) -> None:
        limits, time_source = limits or Limits(), time_source or TimeSource()
        self._limits = limits
        groups: dict[str, list[AgentHandle]] = {}
        for handle in handles:
            groups.setdefault(read_settings(handle.settings).account, []).append(handle)
        self._settings = [read_settings(handle.settings) for handle, *_ in groups.values()]
        # the operator's own server, such as the emulator
        self.is_trusted_audience = not any(
            account_settings.is_default("telegram_api_base_url") for account_settings in self._settings
        )
        super().__init__(
            TelegramAccount(group, settings, limits, time_source)
            for group, settings in zip(groups.values(), self._settings, strict=True)
        )
        self._server: WebhookServer | None = None

    @property
    def webhook_port(self) -> int:
        """The port that listens for webhook deliveries; 0 without a webhook."""
        return self._server.port if self._server is not None else 0

    async def __aenter__(self) -> Self:
        webhook_settings = next((settings for settings in self._settings if settings.telegram_webhook_url), None)
        if webhook_settings is not None and self.is_receiving:  # first, because only this can fail
            prefix = urlsplit(webhook_settings.telegram_webhook_url or "").path
            self._server = WebhookServer(self._find_webhook, webhook_settings, prefix, self._limits.webhook_port)
            await self._server.start()
        return await super().__aenter__()

    async def __aexit__(self, *error: object) -> None:
        if self._server is not None:
            await self._server.stop()
        await super().__aexit__(*error)

    def split_content(self, content: Content) -> list[Content]:
        """Split a reply into messages."""
        return split_reply(content, max((account.reserved for account in self.accounts), default=0))

    def render_notice(self, text: str) -> str:
        """Return the line in italics."""
        return f"*{text}*"

    def stream_interval(self, room: Room) -> float | None:
        """Return the seconds between two edits of a draft; a group allows 20 messages and edits a minute."""
        target = ChatTarget.parse(room.external_id)
        if target.guest_query_id:  # a guest can answer once
            return None
        return GROUP_DRAFT_INTERVAL if target.chat_id < 0 else PRIVATE_DRAFT_INTERVAL

    async def deliver(self, delivery: Delivery) -> str:
        """Send one part of a reply and return its message id."""
        return await self.account_for(delivery).deliver(delivery)

    async def edit(self, delivery: Delivery) -> str:
        """Edit a sent message, or delete it if its new content is empty."""
        return await self.account_for(delivery).edit(delivery)

    def find_reactions(self, room: Room) -> ReactionSet | None:
        """Return the reactions that a bot can set in a chat."""
        account = self.find_account(room.account)
        return account.message_sender.find_reactions(ChatTarget.parse(room.external_id)) if account else None

    async def react(self, delivery: Delivery) -> str:
        """Set or remove a reaction."""
        return await self.account_for(delivery).message_sender.react(delivery)

    def can_open_thread(self, room: Room) -> bool:
        """Return whether a room is in a group with topics."""
        return (
            self.find_account(room.account) is not None
            and bool(room.metadata.get(FORUM_KEY))
            and not room.type.is_direct
        )

    async def open_thread(self, delivery: Delivery, *, is_repeat: bool = False) -> str:
        """Open a topic; one of unknown outcome is marked or held, according to TELEGRAM_UNCLEAR."""
        return await self.account_for(delivery).message_sender.open_topic(delivery, is_repeat=is_repeat)

    def build_thread(self, delivery: Delivery, room: Room) -> Room:
        """Return the room of a topic that was opened in a chat."""
        target = ChatTarget.parse(delivery.external_id)
        return replace(
            room,
            id=derive_room_id(room.account, target),
            type=ChannelType.THREAD,
            external_id=delivery.external_id,
            name=delivery.content.text,
            parent_id=derive_room_id(room.account, ChatTarget(target.chat_id)),
        )

    async def reconcile(self, delivery: Delivery) -> str:
        """Send an uncertain part again with a notice, or hold it, according to TELEGRAM_UNCLEAR."""
        return await self.account_for(delivery).reconcile(delivery)

    async def download(self, url: str) -> bytes | None:
        """Return a file that a user sent to one of the bots; None for URLs of other platforms."""
        account_id, _, file_id = url.removeprefix(f"{PLATFORM}:").partition("/")
        telegram_account = self.find_account(account_id)
        if telegram_account is None or not url.startswith(f"{PLATFORM}:"):
            return None
        try:
            return await telegram_account.client.download(file_id)
        except TelegramError as error:
            raise FetchError(error_text(error)) from None

    async def set_typing(self, room: Room, active: bool) -> None:
        """Start or stop the typing indicator in a room."""
        account = self.find_account(room.account)
        if account is None:
            return
        target = account.message_sender.resolve(ChatTarget.parse(room.external_id))
        if target.guest_query_id or target.direct_topic_id is not None or room.type is ChannelType.BROADCAST:
            return  # Telegram has no indicator there
        account.typing_indicator.show(target, active)

    def _find_webhook(self, account_id: str) -> Webhook | None:
        account = self.find_account(account_id)
        return account.webhook if account is not None else None


def open_telegram(handles: Sequence[AgentHandle]) -> TelegramAdapter:
    """Create the adapter for all characters with a token.

    Raises ConfigError if two have the same without TELEGRAM_FACES.
    """
    groups = share_accounts(
        handles,
        PLATFORM,
        ("TELEGRAM_BOT_TOKEN",),
        lambda handle: read_settings(handle.settings).account,
        lambda handle: read_settings(handle.settings).telegram_faces is not None,
    )
    if not groups:
        raise ConfigError("no character has a TELEGRAM_BOT_TOKEN: get one from BotFather")
    webhook_addresses = {_webhook_address(handle) for handle, *_ in groups} - {None}
    if len(webhook_addresses) > 1:
        raise ConfigError("the TELEGRAM_WEBHOOK_… settings of two characters differ: set them in the environment")
    return TelegramAdapter([handle for group in groups for handle in group])


def _webhook_address(handle: AgentHandle) -> tuple[str, int, str] | None:
    settings = read_settings(handle.settings)
    if settings.telegram_webhook_url is None:
        return None
    path = urlsplit(settings.telegram_webhook_url).path
    return settings.telegram_webhook_host, settings.telegram_webhook_port, path


PRIVACY_MODE_HINT = (
    "privacy mode is on: in groups the bot receives only commands, replies to it and messages that name it; "
    "to receive everything send /setprivacy to BotFather, choose Disable, then add it to the group again"
)


async def check_account(settings: Settings, read_cursor: CursorReader) -> CheckReport:
    """Check the bot of a character's settings without sending any message."""
    loaded = read_settings(settings)
    if loaded.telegram_bot_token is None:
        return CheckReport("Telegram", exists=False, problems=("TELEGRAM_BOT_TOKEN is not set",))
    label = f"bot {loaded.account} at {loaded.telegram_api_base_url}"
    client = BotClient(loaded, Limits(), settings.network_environment())
    await client.open()
    try:
        return await _inspect_account(client, loaded, label)
    except InvalidToken:
        return CheckReport(label, exists=False, problems=(TOKEN_REFUSED,))
    except TelegramError as error:
        problem = f"{error_text(error)}: check the network and TELEGRAM_API_BASE_URL, then try again"
        return CheckReport(label, exists=False, problems=(problem,))
    except PARSE_ERRORS:
        problem = "the server there is not Telegram: check TELEGRAM_API_BASE_URL"
        return CheckReport(label, exists=False, problems=(problem,))
    finally:
        await client.close_sessions()


async def _inspect_account(client: BotClient, settings: TelegramSettings, label: str) -> CheckReport:
    user = await client.get_me()
    webhook = await client.get_webhook_info()
    facts: dict[str, str | int] = {
        "bot": f"@{user.username}",
        "link": f"https://t.me/{user.username}",
        "groups": _describe_groups(user),
        "updates": f"by webhook, at {webhook.url}" if webhook.url else "by polling",
        "waiting": webhook.pending_update_count,
        "guest mode": _describe_switch(user.supports_guest_queries, settings.telegram_guest),
        "inline mode": _describe_switch(user.supports_inline_queries, settings.telegram_inline),
    }
    return CheckReport(label, facts=facts, problems=tuple(_find_problems(user, webhook, settings)))


def _describe_switch(at_telegram: bool | None, here: bool) -> str:
    return "on" if at_telegram and here else "off"


def _describe_groups(user: User) -> str:
    if not user.can_join_groups:
        return "cannot be added to groups, as it is set at BotFather (/setjoingroups)"
    return "receives everything" if user.can_read_all_group_messages else PRIVACY_MODE_HINT


def _find_problems(user: User, webhook: WebhookInfo, settings: TelegramSettings) -> list[str]:
    problems = []
    own_webhook_url = f"{settings.telegram_webhook_url}/{settings.account}" if settings.telegram_webhook_url else ""
    if webhook.url and webhook.url != own_webhook_url:
        problems.append(
            f"another webhook receives the updates ({webhook.url}): stop the program that set it; "
            "this bot removes it when it starts"
        )
    switches = {
        "TELEGRAM_GUEST is on, and Guest Mode": settings.telegram_guest and not user.supports_guest_queries,
        "TELEGRAM_INLINE is on, and inline mode": settings.telegram_inline and not user.supports_inline_queries,
    }
    problems += [
        f"{name} is off at BotFather: switch it on there" for name, is_missing in switches.items() if is_missing
    ]
    if webhook.last_error_message:
        problems.append(f"Telegram could not deliver to {webhook.url}: {webhook.last_error_message}")
    return problems
