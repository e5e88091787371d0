"""The Telegram adapter: one bot per character of the process, or one that several share.

The checks of `bot doctor`: token, privacy mode, competing webhooks.

`TelegramAccount`: a running bot with its connection, receiving and sending.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Self
from urllib.parse import urlsplit

from telegram import User, WebhookInfo
from telegram.error import InvalidToken, TelegramError

import bot.platform as bp
from adapters.telegram.client import (
    PARSE_ERRORS,
    TOKEN_REFUSED,
    BotClient,
    TooManyRequests,
    disconnect_cause_of,
    error_text,
)
from adapters.telegram.commands import CommandHandler, register_commands
from adapters.telegram.config import Limits, TelegramSettings, read_settings
from adapters.telegram.faces import Faces
from adapters.telegram.incoming import FORUM_KEY, PLATFORM, BotIdentity, ChatTarget, IncomingContext, derive_room_id
from adapters.telegram.inline import InlineReceiver
from adapters.telegram.outgoing import split_reply
from adapters.telegram.polling import UpdatePoller, Webhook, WebhookServer
from adapters.telegram.receiving import (
    AdministratorCache,
    Listener,
    UpdateReceiver,
    build_migration,
    load_former_chat_ids,
)
from adapters.telegram.sending import MessageSender
from bot import BotError, ChannelType, ConfigError, Content, Room, Settings
from bot.store import CheckReport, StoreUnavailable

logger = logging.getLogger(__name__)
STORE_RETRY_SECONDS = 1.0
TYPING_TIMEOUT = 4.0
TYPING_DELAY = 0.5  # what is answered within it needs no indicator, which costs a request


class TelegramAccount(bp.Account):
    """The bot of these characters, one or several that share it. Opened and closed by the adapter.

    Raises ConfigError where two of them have the same name.
    """

    def __init__(
        self, handles: Sequence[bp.AgentHandle], settings: TelegramSettings, limits: Limits, time_source: bp.TimeSource
    ) -> None:
        self._handles, self._handle, self._settings = tuple(handles), handles[0], settings
        handle = self._handle
        self._limits, self._time = limits, time_source
        self.client = BotClient(settings, limits, handle.settings.network_environment())
        self.status = bp.ConnectionStatus(PLATFORM, handle.character.name, time_source.now, agent_id=handle.agent_id)
        self._token_check = bp.TokenCheck(self.status, self._is_token_accepted, TOKEN_REFUSED, time_source)
        self.message_sender = MessageSender(
            self.client, settings, limits, time_source, self._token_check, self._on_chat_migrated
        )
        self.typing_indicator = bp.TypingIndicator(
            self._show_typing, time_source.sleep, interval=limits.typing_seconds, delay=TYPING_DELAY
        )
        self._faces = Faces(settings.account, handles, time_source) if len(handles) > 1 else None
        self.keys = tuple(map(self._account_of, handles))  # that of the first is the bot's id
        self._commands = (*handle.commands, *(self._faces.cast.specs if self._faces is not None else ()))
        self._listeners = [self._build_listener(handle, "", {}) for handle in handles]
        self._receiver: UpdateReceiver | None = None
        self._tasks = bp.TaskSet(f"bot {settings.account} on Telegram")
        self.webhook: Webhook | None = None

    @property
    def reserved(self) -> int:
        """How many units the name before a text takes, at most."""
        names = [handle.character.name for handle in self._handles] if self._faces is not None else []
        return max((2 * len(name) + 2 for name in names), default=0)

    async def deliver(self, delivery: bp.Delivery) -> str:
        """Send a part and return its message id."""
        return await self._note_sent(
            delivery, await self.message_sender.deliver(delivery, await self._find_name(delivery))
        )

    async def edit(self, delivery: bp.Delivery) -> str:
        """Edit or delete the message that a part replaces."""
        return await self._note_sent(
            delivery, await self.message_sender.edit(delivery, await self._find_name(delivery))
        )

    async def reconcile(self, delivery: bp.Delivery) -> str:
        """Send a part again of which it is unknown whether it arrived, or hold it."""
        return await self._note_sent(
            delivery, await self.message_sender.reconcile(delivery, await self._find_name(delivery))
        )

    async def _find_name(self, delivery: bp.Delivery) -> str:
        return await self._faces.find_name(delivery) if self._faces is not None else ""

    async def _note_sent(self, delivery: bp.Delivery, message_id: str) -> str:
        target = ChatTarget.parse(delivery.target)
        if self._receiver is not None and message_id.isdecimal():  # reactions to it do not name the topic
            self._receiver.note_topic(target.chat_id, int(message_id), target.topic_id)
        if self._faces is not None:
            await self._faces.note_sent(delivery, message_id)
        return message_id

    def _account_of(self, handle: bp.AgentHandle) -> str:
        return self._settings.account if self._faces is None else self._faces.account_of(handle)

    async def open(self) -> None:
        """Open the HTTP sessions and start receiving in the background."""
        await self.client.open()
        self._tasks.start(self._run())

    async def close(self) -> None:
        """Stop all tasks and close the sessions. Telegram sends unconfirmed updates again."""
        await self.typing_indicator.stop()
        await self._token_check.close()
        await self._tasks.cancel()
        if self._receiver is not None:
            await self._receiver.stop()
        await self.client.close_sessions()

    async def _run(self) -> None:
        """Identify the bot and receive updates; while Telegram refuses the token, wait until it accepts it."""
        failures, backoff = 0, bp.Backoff(1.0, self._limits.max_retry_delay)
        while True:
            retry_after = 0.0
            try:
                return await self._receive_updates(await self._identify())
            except InvalidToken as error:
                if await self._token_check.confirm():
                    await self._token_check.wait_accepted()
                    continue
                self.status.failed(disconnect_cause_of(error), error_text(error))
            except (TelegramError, *PARSE_ERRORS) as error:
                self.status.failed(disconnect_cause_of(error), error_text(error))
                retry_after = error.seconds if isinstance(error, TooManyRequests) else 0.0
            failures += 1
            await self._time.sleep(backoff.delay(failures, retry_after=retry_after))

    async def _is_token_accepted(self) -> bool | None:
        try:
            await self.client.get_me()
        except InvalidToken:
            return False
        except (TelegramError, *PARSE_ERRORS):
            return None
        return True

    async def _receive_updates(self, identity: BotIdentity) -> None:
        """Receive updates until the inbox closes. Raises InvalidToken if Telegram refuses a call for its token."""
        self._listeners = [
            self._build_listener(handle, identity.username, await self._load_former_chat_ids(handle))
            for handle in self._handles
        ]
        self.status.account = f"@{identity.username}" if identity.username else ""
        self.message_sender.known_people.add_bot(identity.username.lower())
        if not self.is_receiving:
            self.status.connected()
            return
        if self._receiver is not None:
            await self._receiver.stop()
        self._receiver = self._create_receiver()
        self._tasks.start(register_commands(self.client, self._commands))
        if self._settings.telegram_webhook_url:
            self.webhook = Webhook(self.client, self._receiver, self._settings, self._limits, self._time, self.status)
            await self.webhook.run()
        else:
            await UpdatePoller(self.client, self._handles, self._receiver, self._limits, self._time, self.status).run()

    async def _identify(self) -> BotIdentity:
        try:
            user = await self.client.get_me()
        except InvalidToken:
            self._token_check.refuse()
            raise
        reads_all = bool(user.can_read_all_group_messages)
        logger.info(
            "connected to Telegram as @%s%s",
            user.username,
            "" if reads_all else " in privacy mode: in groups it receives only messages addressed to it",
        )
        return BotIdentity(self._handle.agent_id, self.client.account, user.username or "")

    async def _load_former_chat_ids(self, handle: bp.AgentHandle) -> dict[int, int]:
        while True:
            try:
                return await load_former_chat_ids(handle, self._account_of(handle))
            except StoreUnavailable:
                await self._time.sleep(STORE_RETRY_SECONDS)

    def _build_listener(self, handle: bp.AgentHandle, username: str, former_chat_ids: dict[int, int]) -> Listener:
        context = IncomingContext(
            BotIdentity(handle.agent_id, self._account_of(handle), username),
            handle.room_rules,
            self._settings.telegram_allowed_chats,
            former_chat_ids=former_chat_ids,
            answers_channel_posts=self._settings.telegram_answer_channel_posts,
        )
        return Listener(handle, context, CommandHandler(handle, self.client, self.message_sender).handle)

    def _create_receiver(self) -> UpdateReceiver:
        administrators = AdministratorCache(self.client, self._time.monotonic, self._limits.administrators_ttl)
        return UpdateReceiver(
            self._listeners,
            self.client,
            administrators,
            self._time,
            self.message_sender.note_user,
            InlineReceiver(self._handle, self.client, self._time, self._listeners[0].context.identity),
            self._commands,
            self._faces,
        )

    async def _show_typing(self, target: ChatTarget) -> bool:
        """Show "is typing…" unless messages need the capacity; return False if Telegram does not take it."""
        if self.message_sender.rate_limiter.try_acquire(target.chat_id):
            try:
                await self.client.send_chat_action(
                    target.chat_id, "typing", message_thread_id=target.thread_id, read_timeout=TYPING_TIMEOUT
                )
            except TelegramError:
                return False
        return True

    def _on_chat_migrated(self, old_chat_id: int, new_chat_id: int) -> None:
        """Report a migration in the background, because the delivery that noticed it holds the room."""
        self._tasks.start(self._report_migration(old_chat_id, new_chat_id))

    async def _report_migration(self, old_chat_id: int, new_chat_id: int) -> None:
        try:
            for listener in self._listeners:
                await build_migration(listener.context, old_chat_id, new_chat_id)(listener.handle)
        except BotError as error:
            logger.warning("the migration of chat %d to %d could not be stored: %s", old_chat_id, new_chat_id, error)


PRIVATE_DRAFT_INTERVAL, GROUP_DRAFT_INTERVAL = 1.0, 3.0


class TelegramAdapter(bp.AccountAdapter[TelegramAccount]):
    """Connects the bots of all characters while it is entered as a context manager."""

    platform = PLATFORM
    can_edit = True
    shows_choices = True
    sends_response_files = True
    voice_type = "audio/ogg"  # with Opus inside it is a voice message

    def __init__(
        self,
        handles: Sequence[bp.AgentHandle],
        *,
        limits: Limits | None = None,
        time_source: bp.TimeSource | None = None,
    ) -> None:
        limits, time_source = limits or Limits(), time_source or bp.TimeSource()
        self._limits = limits
        groups: dict[str, list[bp.AgentHandle]] = {}
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

    async def deliver(self, delivery: bp.Delivery) -> str:
        """Send one part of a reply and return its message id."""
        return await self.account_for(delivery).deliver(delivery)

    async def edit(self, delivery: bp.Delivery) -> str:
        """Edit a sent message, or delete it if its new content is empty."""
        return await self.account_for(delivery).edit(delivery)

    def find_reactions(self, room: Room) -> bp.ReactionSet | None:
        """Return the reactions that a bot can set in a chat."""
        account = self.find_account(room.account)
        return account.message_sender.find_reactions(ChatTarget.parse(room.external_id)) if account else None

    async def react(self, delivery: bp.Delivery) -> str:
        """Set or remove a reaction."""
        return await self.account_for(delivery).message_sender.react(delivery)

    def can_open_thread(self, room: Room) -> bool:
        """Return whether a room is in a group with topics."""
        return (
            self.find_account(room.account) is not None
            and bool(room.metadata.get(FORUM_KEY))
            and not room.type.is_direct
        )

    async def open_thread(self, delivery: bp.Delivery, *, is_repeat: bool = False) -> str:
        """Open a topic; one of unknown outcome is marked or held, according to TELEGRAM_UNCLEAR."""
        return await self.account_for(delivery).message_sender.open_topic(delivery, is_repeat=is_repeat)

    def build_thread(self, delivery: bp.Delivery, room: Room) -> Room:
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

    async def reconcile(self, delivery: bp.Delivery) -> str:
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
            raise bp.FetchError(error_text(error)) from None

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


def open_telegram(handles: Sequence[bp.AgentHandle]) -> TelegramAdapter:
    """Create the adapter for all characters with a token.

    Raises ConfigError if two have the same without TELEGRAM_FACES.
    """
    groups = bp.share_accounts(
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


def _webhook_address(handle: bp.AgentHandle) -> tuple[str, int, str] | None:
    settings = read_settings(handle.settings)
    if settings.telegram_webhook_url is None:
        return None
    path = urlsplit(settings.telegram_webhook_url).path
    return settings.telegram_webhook_host, settings.telegram_webhook_port, path


PRIVACY_MODE_HINT = (
    "privacy mode is on: in groups the bot receives only commands, replies to it and messages that name it; "
    "to receive everything send /setprivacy to BotFather, choose Disable, then add it to the group again"
)


async def check_account(settings: Settings, read_cursor: bp.CursorReader) -> CheckReport:
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
