"""One character's account on Matrix: connects, receives, sends, edits and deletes."""

import asyncio
import json
import logging
from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import TypeVar

from adapters.matrix.client import REQUEST_TIMEOUT, Json, MatrixClient, Refused, path_of
from adapters.matrix.config import PLATFORM, MatrixSettings
from adapters.matrix.incoming import IncomingContext, content_of
from adapters.matrix.outgoing import build_edit, build_file, build_text, relate, transaction_id_of_edit
from adapters.matrix.receiving import FILTER, SYNC_CURSOR, SyncReceiver
from adapters.matrix.rooms import Identity, RoomDirectory, RoomTarget, text_at
from bot import Content, TemporaryError, system_clock
from bot.platform import (
    Account,
    AgentHandle,
    Backoff,
    ConnectionStatus,
    Delivery,
    DeliveryError,
    DeliveryHeld,
    DeliveryUnknown,
    DisconnectCause,
    InboxClosed,
    KnownPeople,
    MessageGone,
    NotSent,
    StreamCursor,
    TaskSet,
    TokenCheck,
    disconnect_cause,
)

logger = logging.getLogger(__name__)
TOKEN_REFUSED = "the homeserver refuses the token: log the bot's account in again and set MATRIX_TOKEN"
T = TypeVar("T")
DEVICE_CURSOR = "device"
SYNC_SECONDS = 30.0  # how long the homeserver waits for an event
FULL_STATE_TIMEOUT = 300.0  # for all rooms of the account
TYPING_MS = 120_000  # after which the homeserver ends the indicator by itself
MAX_RETRY_DELAY = 60.0
REMOVAL, DUPLICATE_REACTION = "removal", "M_DUPLICATE_ANNOTATION"
MAX_TRANSACTION_AGE = timedelta(hours=23)  # a homeserver remembers transaction ids for a day


class MatrixAccount(Account):
    """The account of one character. Opened and closed by the adapter."""

    def __init__(self, handle: AgentHandle) -> None:
        self._handle = handle
        self._settings = handle.settings.load(MatrixSettings)
        self._identity = Identity(handle.agent_id, self._settings.matrix_user)
        self.keys = (self._identity.user_id,)
        self.rooms = RoomDirectory(self._identity)
        self.client = MatrixClient(self._settings, handle.settings.network_environment())
        self.status = ConnectionStatus(PLATFORM, handle.character.name, agent_id=handle.agent_id)
        self.status.account = self._identity.user_id
        self._token_check = TokenCheck(self.status, self._is_token_accepted, TOKEN_REFUSED)
        self._known_people = KnownPeople[str]()
        self._device_since: datetime | None = None  # since when the token has been that of this device
        self._receiver: SyncReceiver | None = None
        self._position = ""  # behind the last response; stored where it brought events
        self._tasks = TaskSet(f"{self._identity.user_id} on Matrix")

    async def open(self) -> None:
        """Open the HTTP session and start receiving in the background."""
        await self.client.__aenter__()
        self._tasks.start(self._run())

    async def close(self) -> None:
        """Stop all tasks and close the session."""
        await self._token_check.close()
        await self._tasks.cancel()
        await self.client.__aexit__()

    async def deliver(self, delivery: Delivery) -> str:
        """Send a part; the homeserver takes a part of the same id once."""
        self._check_connected()
        target = RoomTarget.parse(delivery.target)
        reply_to = "" if self.rooms.get(target.room_id).is_private_chat else delivery.reply_to
        content = relate(await self._build(delivery.content, target), target, reply_to)
        return await self._send(target, delivery.id, content)

    async def reconcile(self, delivery: Delivery) -> str:
        """Send a part of unknown outcome again: the homeserver returns the id of the first one if there is one."""
        first = delivery.first_attempt_at or delivery.created_at
        if self._device_since is None:
            raise DeliveryUnknown("not connected yet")
        if first < self._device_since:
            raise DeliveryHeld("it may have been sent with the token of another device")
        if system_clock() - first > MAX_TRANSACTION_AGE:
            raise DeliveryHeld("the homeserver does not remember any more whether it arrived")
        return await self.deliver(delivery)

    async def edit(self, delivery: Delivery) -> str:
        """Replace a message, or redact it if its new content is empty."""
        self._check_connected()
        target, event_id = RoomTarget.parse(delivery.target), delivery.replaces_external_id
        is_deletion = not delivery.content.text and not delivery.content.attachments
        event = await self._checked(self.client.find(path_of("rooms", target.room_id, "event", event_id)))
        if event is None or not content_of(event):
            if is_deletion:
                return event_id
            raise MessageGone("the message was deleted from the room: it is not sent again")
        transaction_id = transaction_id_of_edit(delivery.id, event_id, delivery.content)
        if is_deletion:
            path = path_of("rooms", target.room_id, "redact", event_id, transaction_id)
            await self._checked(self.client.put(path, {}, label="edit"))
        else:
            content = build_edit(await self._build(delivery.content, target), event_id)
            await self._send(target, transaction_id, content, "edit")
        return event_id

    async def react(self, delivery: Delivery) -> str:
        """Set a reaction, after the one that it replaces was redacted; return the id of its event."""
        self._check_connected()
        target, earlier, emoji = RoomTarget.parse(delivery.target), delivery.replaces_external_id, delivery.content.text
        if earlier:
            path = path_of("rooms", target.room_id, "redact", earlier, f"{delivery.id}-{REMOVAL}")
            await self._checked(self.client.put(path, {}, label="react"))
        if not emoji:
            return ""
        relation = {"rel_type": "m.annotation", "event_id": delivery.reply_to, "key": emoji}
        try:
            return await self._send(target, delivery.id, {"m.relates_to": relation}, "react", kind="m.reaction")
        except Refused as error:
            if error.code != DUPLICATE_REACTION:  # it was set, and the homeserver has forgotten the transaction id
                raise
            return ""

    async def show_typing(self, target: RoomTarget, *, is_active: bool) -> None:
        """Start or end the typing indicator in a room. Raises DeliveryError."""
        body = {"typing": is_active, **({"timeout": TYPING_MS} if is_active else {})}
        await self.client.put(path_of("rooms", target.room_id, "typing", self._identity.user_id), body)

    async def _run(self) -> None:
        """Connect and receive until the inbox closes; while the token is refused, wait until it is accepted."""
        failures, backoff = 0, Backoff(1.0, MAX_RETRY_DELAY)
        while True:
            retry_after = 0.0
            try:
                if self._receiver is None and not await self._connect():
                    return
                await self._sync(may_be_old=failures > 0 or not self.status.has_connected)
                self.status.connected()
                failures = 0
                continue
            except InboxClosed:
                return
            except Refused as error:
                if error.is_about_token and await self._token_check.confirm():
                    await self._token_check.wait_accepted()
                    continue
                self.status.failed(DisconnectCause.PLATFORM, error)
            except (NotSent, DeliveryUnknown) as error:
                self.status.failed(disconnect_cause(error), error)
                retry_after = error.retry_after or 0.0
            except TemporaryError as error:  # nothing can be stored, which the store reports itself
                logger.info("events of %s are delayed: %s", self._identity.user_id, error)
            except Exception as error:  # a defect must not end receiving
                logger.exception("events of %s could not be processed", self._identity.user_id)
                self.status.failed(DisconnectCause.FAULT, type(error).__name__)
            failures += 1
            await asyncio.sleep(backoff.delay(failures, retry_after=retry_after))

    async def _connect(self) -> bool:
        """Find out who the bot is; return whether to receive."""
        owner = await self.client.get("account/whoami")
        if owner.get("user_id") != self._identity.user_id:
            problem = f"MATRIX_TOKEN is that of {owner.get('user_id')}, not of MATRIX_USER {self._identity.user_id}"
            self.status.stopped(DisconnectCause.REFUSED, problem)
            return False
        await self._note_device(text_at(owner, "device_id"))
        self._known_people.add_bot(self._identity.user_id)
        if not self.is_receiving:
            self.status.connected()
            return False
        profile = await self.client.find(f"profile/{path_of(self._identity.user_id)}") or {}
        direct = await self.client.find(f"user/{path_of(self._identity.user_id)}/account_data/m.direct") or {}
        direct_rooms = {user: [*map(str, rooms)] for user, rooms in direct.items() if isinstance(rooms, list)}
        name = text_at(profile, "displayname")
        context = IncomingContext(self._identity, self.rooms, self._handle.room_rules, name)
        self._receiver = SyncReceiver(
            self._handle, self.client, self._settings, context, direct_rooms, self._known_people.note_user, self._tasks
        )
        logger.info("connected to %s as %s", self.client.url, self._identity.user_id)
        return True

    async def _note_device(self, device_id: str) -> None:
        """Store since when the token has been that of its device: each device has transaction ids of its own."""
        stored = json.loads(await self._handle.cursor(PLATFORM, self._identity.user_id, DEVICE_CURSOR) or "{}")
        if stored.get("id") != device_id:
            stored = {"id": device_id, "since": system_clock().isoformat()}
            cursor = StreamCursor(PLATFORM, self._identity.user_id, DEVICE_CURSOR, json.dumps(stored))
            await self._handle.submit_all([], cursor)
        self._device_since = datetime.fromisoformat(stored["since"])

    async def _sync(self, *, may_be_old: bool) -> None:
        """Wait for events and store them; the first response of a process describes every room."""
        since = self._position or await self._handle.cursor(PLATFORM, self._identity.user_id, SYNC_CURSOR) or ""
        is_first = not self.rooms.is_complete
        parameters = {"filter": FILTER, "timeout": str(round(1000 * SYNC_SECONDS))}
        parameters |= {"since": since} if since else {}
        parameters |= {"full_state": "true", "timeout": "0"} if is_first else {}
        seconds = FULL_STATE_TIMEOUT if is_first else SYNC_SECONDS + REQUEST_TIMEOUT
        response = await self.client.get("sync", parameters, seconds)
        if self._receiver is not None:
            await self._receiver.receive(response, since, may_be_old=may_be_old)
        self.rooms.is_complete, self._position = True, text_at(response, "next_batch")

    async def _is_token_accepted(self) -> bool | None:
        try:
            await self.client.get("account/whoami")
        except Refused as error:
            return False if error.is_about_token else None
        except DeliveryError:
            return None
        return True

    async def _build(self, content: Content, target: RoomTarget) -> Json:
        """Return the content of the event of a part; its file is uploaded first, which may be repeated unseen."""
        people = self._known_people.of(target.room_id)
        text = build_text(content.text, people) if content.text or not content.attachments else None
        if not content.attachments:
            return text or {}
        [file] = content.attachments
        name = file.name or file.title or "file"
        try:
            address = await self._checked(self.client.upload(file.data or b"", name, file.content_type))
        except DeliveryUnknown as error:
            raise NotSent(f"the file could not be uploaded: {error}") from error
        except Refused as error:  # such as one that is too large
            logger.warning("%s cannot be sent: %s", name, error)
            return build_text(f"{content.text}\n\n({name} could not be sent.)".strip(), people)
        return build_file(file, name, address, text)

    async def _send(
        self,
        target: RoomTarget,
        transaction_id: str,
        content: Json,
        label: str = "send",
        *,
        kind: str = "m.room.message",
    ) -> str:
        path = path_of("rooms", target.room_id, "send", kind, transaction_id)
        event_id = (await self._checked(self.client.put(path, content, label=label))).get("event_id")
        if not isinstance(event_id, str):
            raise DeliveryUnknown("the homeserver returned no id of the event")
        return event_id

    def _check_connected(self) -> None:
        """Raise NotSent while the token is not accepted, or it is not known whose it is."""
        if self._token_check.is_refused:
            raise NotSent(TOKEN_REFUSED, retry_after=self._token_check.retry_after)
        if self._device_since is None:
            raise NotSent("not connected yet")

    async def _checked(self, request: Awaitable[T]) -> T:
        """Return the result of a request. Raises NotSent where it is refused for the token: that may be renewed."""
        try:
            return await request
        except Refused as error:
            if not error.is_about_token:
                raise
            await self._token_check.confirm()
            raise NotSent(TOKEN_REFUSED, retry_after=self._token_check.retry_after) from None
