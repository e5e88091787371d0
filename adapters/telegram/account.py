"""The running bot of one character, or of several that share it: its connection, receiving and sending."""

import logging
from collections.abc import Sequence

from telegram.error import InvalidToken, TelegramError

from adapters.telegram.client import (
    PARSE_ERRORS,
    TOKEN_REFUSED,
    BotClient,
    TooManyRequests,
    disconnect_cause_of,
    error_text,
)
from adapters.telegram.commands import CommandHandler, register_commands
from adapters.telegram.config import Limits, TelegramSettings
from adapters.telegram.faces import Faces
from adapters.telegram.incoming import PLATFORM, BotIdentity, ChatTarget, IncomingContext
from adapters.telegram.inline import InlineReceiver
from adapters.telegram.polling import UpdatePoller, Webhook
from adapters.telegram.receiving import (
    AdministratorCache,
    Listener,
    UpdateReceiver,
    build_migration,
    load_former_chat_ids,
)
from adapters.telegram.sending import MessageSender
from bot import BotError
from bot.platform import (
    Account,
    AgentHandle,
    Backoff,
    ConnectionStatus,
    Delivery,
    TaskSet,
    TimeSource,
    TokenCheck,
    TypingIndicator,
)
from bot.store import StoreUnavailable

logger = logging.getLogger(__name__)
STORE_RETRY_SECONDS = 1.0
TYPING_TIMEOUT = 4.0
TYPING_DELAY = 0.5  # what is answered within it needs no indicator, which costs a request


class TelegramAccount(Account):
    """The bot of these characters, one or several that share it. Opened and closed by the adapter.

    Raises ConfigError where two of them have the same name.
    """

    def __init__(
        self, handles: Sequence[AgentHandle], settings: TelegramSettings, limits: Limits, time_source: TimeSource
    ) -> None:
        self._handles, self._handle, self._settings = tuple(handles), handles[0], settings
        handle = self._handle
        self._limits, self._time = limits, time_source
        self.client = BotClient(settings, limits, handle.settings.network_environment())
        self.status = ConnectionStatus(PLATFORM, handle.character.name, time_source.now, agent_id=handle.agent_id)
        self._token_check = TokenCheck(self.status, self._is_token_accepted, TOKEN_REFUSED, time_source)
        self.message_sender = MessageSender(
            self.client, settings, limits, time_source, self._token_check, self._on_chat_migrated
        )
        self.typing_indicator = TypingIndicator(
            self._show_typing, time_source.sleep, interval=limits.typing_seconds, delay=TYPING_DELAY
        )
        self._faces = Faces(settings.account, handles, time_source) if len(handles) > 1 else None
        self.keys = tuple(map(self._account_of, handles))  # that of the first is the bot's id
        self._commands = (*handle.commands, *(self._faces.cast.specs if self._faces is not None else ()))
        self._listeners = [self._build_listener(handle, "", {}) for handle in handles]
        self._receiver: UpdateReceiver | None = None
        self._tasks = TaskSet(f"bot {settings.account} on Telegram")
        self.webhook: Webhook | None = None

    @property
    def reserved(self) -> int:
        """How many units the name before a text takes, at most."""
        names = [handle.character.name for handle in self._handles] if self._faces is not None else []
        return max((2 * len(name) + 2 for name in names), default=0)

    async def deliver(self, delivery: Delivery) -> str:
        """Send a part and return its message id."""
        return await self._note_sent(
            delivery, await self.message_sender.deliver(delivery, await self._find_name(delivery))
        )

    async def edit(self, delivery: Delivery) -> str:
        """Edit or delete the message that a part replaces."""
        return await self._note_sent(
            delivery, await self.message_sender.edit(delivery, await self._find_name(delivery))
        )

    async def reconcile(self, delivery: Delivery) -> str:
        """Send a part again of which it is unknown whether it arrived, or hold it."""
        return await self._note_sent(
            delivery, await self.message_sender.reconcile(delivery, await self._find_name(delivery))
        )

    async def _find_name(self, delivery: Delivery) -> str:
        return await self._faces.find_name(delivery) if self._faces is not None else ""

    async def _note_sent(self, delivery: Delivery, message_id: str) -> str:
        target = ChatTarget.parse(delivery.target)
        if self._receiver is not None and message_id.isdecimal():  # reactions to it do not name the topic
            self._receiver.note_topic(target.chat_id, int(message_id), target.topic_id)
        if self._faces is not None:
            await self._faces.note_sent(delivery, message_id)
        return message_id

    def _account_of(self, handle: AgentHandle) -> str:
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
        failures, backoff = 0, Backoff(1.0, self._limits.max_retry_delay)
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

    async def _load_former_chat_ids(self, handle: AgentHandle) -> dict[int, int]:
        while True:
            try:
                return await load_former_chat_ids(handle, self._account_of(handle))
            except StoreUnavailable:
                await self._time.sleep(STORE_RETRY_SECONDS)

    def _build_listener(self, handle: AgentHandle, username: str, former_chat_ids: dict[int, int]) -> Listener:
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
