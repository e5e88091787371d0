"""The Matrix adapter: one account per character of the process, and the check of `bot doctor`.

`MatrixAccount` connects, receives, sends, edits and deletes.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import bot.platform as bp
from adapters.matrix.client import REQUEST_TIMEOUT, Json, MatrixClient, Refused, path_of
from adapters.matrix.config import PLATFORM, REQUIRED_VARIABLES, MatrixSettings
from adapters.matrix.incoming import IncomingContext, content_of
from adapters.matrix.outgoing import build_edit, build_file, build_text, relate, split_reply, transaction_id_of_edit
from adapters.matrix.receiving import FILTER, SYNC_CURSOR, SyncReceiver
from adapters.matrix.rooms import Identity, RoomDirectory, RoomTarget, text_at
from bot import ConfigError, Content, Room, Settings, TemporaryError, system_clock
from bot.store import CheckReport

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


class MatrixAccount(bp.Account):
    """The account of one character. Opened and closed by the adapter."""

    def __init__(self, handle: bp.AgentHandle) -> None:
        self._handle = handle
        self._settings = handle.settings.load(MatrixSettings)
        self._identity = Identity(handle.agent_id, self._settings.matrix_user)
        self.keys = (self._identity.user_id,)
        self.rooms = RoomDirectory(self._identity)
        self.client = MatrixClient(self._settings, handle.settings.network_environment())
        self.status = bp.ConnectionStatus(PLATFORM, handle.character.name, agent_id=handle.agent_id)
        self.status.account = self._identity.user_id
        self._token_check = bp.TokenCheck(self.status, self._is_token_accepted, TOKEN_REFUSED)
        self._known_people = bp.KnownPeople[str]()
        self._device_since: datetime | None = None  # since when the token has been that of this device
        self._receiver: SyncReceiver | None = None
        self._position = ""  # behind the last response; stored where it brought events
        self._tasks = bp.TaskSet(f"{self._identity.user_id} on Matrix")

    async def open(self) -> None:
        """Open the HTTP session and start receiving in the background."""
        await self.client.session.__aenter__()
        self._tasks.start(self._run())

    async def close(self) -> None:
        """Stop all tasks and close the session."""
        await self._token_check.close()
        await self._tasks.cancel()
        await self.client.session.__aexit__()

    async def deliver(self, delivery: bp.Delivery) -> str:
        """Send a part; the homeserver takes a part of the same id once."""
        self._check_connected()
        target = RoomTarget.parse(delivery.target)
        reply_to = "" if self.rooms.get(target.room_id).is_private_chat else delivery.reply_to
        content = relate(await self._build(delivery.content, target), target, reply_to)
        return await self._send(target, delivery.id, content)

    async def reconcile(self, delivery: bp.Delivery) -> str:
        """Send a part of unknown outcome again: the homeserver returns the id of the first one if there is one."""
        first = delivery.first_attempt_at or delivery.created_at
        if self._device_since is None:
            raise bp.DeliveryUnknown("not connected yet")
        if first < self._device_since:
            raise bp.DeliveryHeld("it may have been sent with the token of another device")
        if system_clock() - first > MAX_TRANSACTION_AGE:
            raise bp.DeliveryHeld("the homeserver does not remember any more whether it arrived")
        return await self.deliver(delivery)

    async def edit(self, delivery: bp.Delivery) -> str:
        """Replace a message, or redact it if its new content is empty."""
        self._check_connected()
        target, event_id = RoomTarget.parse(delivery.target), delivery.replaces_external_id
        is_deletion = not delivery.content.text and not delivery.content.attachments
        event = await self._checked(self.client.find(path_of("rooms", target.room_id, "event", event_id)))
        if event is None or not content_of(event):
            if is_deletion:
                return event_id
            raise bp.MessageGone("the message was deleted from the room: it is not sent again")
        transaction_id = transaction_id_of_edit(delivery.id, event_id, delivery.content)
        if is_deletion:
            path = path_of("rooms", target.room_id, "redact", event_id, transaction_id)
            await self._checked(self.client.put(path, {}, label="edit"))
        else:
            content = build_edit(await self._build(delivery.content, target), event_id)
            await self._send(target, transaction_id, content, "edit")
        return event_id

    async def react(self, delivery: bp.Delivery) -> str:
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
        failures, backoff = 0, bp.Backoff(1.0, MAX_RETRY_DELAY)
        while True:
            retry_after = 0.0
            try:
                if self._receiver is None and not await self._connect():
                    return
                await self._sync(may_be_old=failures > 0 or not self.status.has_connected)
                self.status.connected()
                failures = 0
                continue
            except bp.InboxClosed:
                return
            except Refused as error:
                if error.is_about_token and await self._token_check.confirm():
                    await self._token_check.wait_accepted()
                    continue
                self.status.failed(bp.DisconnectCause.PLATFORM, error)
            except (bp.NotSent, bp.DeliveryUnknown) as error:
                self.status.failed(bp.disconnect_cause(error), error)
                retry_after = error.retry_after or 0.0
            except TemporaryError as error:  # nothing can be stored, which the store reports itself
                logger.info("events of %s are delayed: %s", self._identity.user_id, error)
            except Exception as error:  # a defect must not end receiving
                logger.exception("events of %s could not be processed", self._identity.user_id)
                self.status.failed(bp.DisconnectCause.FAULT, type(error).__name__)
            failures += 1
            await asyncio.sleep(backoff.delay(failures, retry_after=retry_after))

    async def _connect(self) -> bool:
        """Find out who the bot is; return whether to receive."""
        owner = await self.client.get("account/whoami")
        if owner.get("user_id") != self._identity.user_id:
            problem = f"MATRIX_TOKEN is that of {owner.get('user_id')}, not of MATRIX_USER {self._identity.user_id}"
            self.status.stopped(bp.DisconnectCause.REFUSED, problem)
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
            cursor = bp.StreamCursor(PLATFORM, self._identity.user_id, DEVICE_CURSOR, json.dumps(stored))
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
        except bp.DeliveryError:
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
        except bp.DeliveryUnknown as error:
            raise bp.NotSent(f"the file could not be uploaded: {error}") from error
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
            raise bp.DeliveryUnknown("the homeserver returned no id of the event")
        return event_id

    def _check_connected(self) -> None:
        """Raise NotSent while the token is not accepted, or it is not known whose it is."""
        if self._token_check.is_refused:
            raise bp.NotSent(TOKEN_REFUSED, retry_after=self._token_check.retry_after)
        if self._device_since is None:
            raise bp.NotSent("not connected yet")

    async def _checked(self, request: Awaitable[T]) -> T:
        """Return the result of a request. Raises NotSent where it is refused for the token: that may be renewed."""
        try:
            return await request
        except Refused as error:
            if not error.is_about_token:
                raise
            await self._token_check.confirm()
            raise bp.NotSent(TOKEN_REFUSED, retry_after=self._token_check.retry_after) from None


class MatrixAdapter(bp.AccountAdapter[MatrixAccount]):
    """One account for each character; it is known by its user id."""

    platform = PLATFORM
    can_edit = True
    voice_type = "audio/ogg"

    def split_content(self, content: Content) -> list[Content]:
        """Split a reply into events."""
        return split_reply(content)

    def render_notice(self, text: str) -> str:
        """Return the line in italics."""
        return f"*{text}*"

    async def deliver(self, delivery: bp.Delivery) -> str:
        """Send one part of a reply and return the id of its event."""
        return await self.account_for(delivery).deliver(delivery)

    async def edit(self, delivery: bp.Delivery) -> str:
        """Replace a sent message, or redact it if its new content is empty."""
        return await self.account_for(delivery).edit(delivery)

    async def reconcile(self, delivery: bp.Delivery) -> str:
        """Send an uncertain part again under the same transaction id, which shows it once."""
        return await self.account_for(delivery).reconcile(delivery)

    def thread_message_id(self, room: Room) -> str:
        """Return the id of the event with which a thread begins."""
        return RoomTarget.parse(room.external_id).thread_id

    def find_reactions(self, room: Room) -> bp.ReactionSet:
        """Return all emoji."""
        return bp.ReactionSet()

    async def react(self, delivery: bp.Delivery) -> str:
        """Set or redact a reaction."""
        return await self.account_for(delivery).react(delivery)

    async def download(self, url: str) -> bytes | None:
        """Return a file that a user sent; None for URLs of other platforms."""
        user_id, _, address = url.removeprefix(f"{PLATFORM}:").partition("/")
        account = self.find_account(user_id)
        if account is None or not url.startswith(f"{PLATFORM}:"):
            return None
        server, _, media_id = address.partition("/")
        try:
            return await account.client.download(server, media_id)
        except bp.DeliveryError as error:
            raise bp.FetchError(f"the homeserver does not return the file: {error}") from None

    async def set_typing(self, room: Room, active: bool) -> None:
        """Start or stop the typing indicator in a room."""
        if (account := self.find_account(room.account)) is not None:
            await account.show_typing(RoomTarget.parse(room.external_id), is_active=active)


def user_id_of(handle: bp.AgentHandle) -> str:
    """Return the user id of a character's account."""
    return handle.settings.load(MatrixSettings).matrix_user


def open_matrix(handles: Sequence[bp.AgentHandle]) -> MatrixAdapter:
    """Create the adapter for all characters with an account. Raises ConfigError if two have the same."""
    accounts = bp.select_accounts(handles, PLATFORM, REQUIRED_VARIABLES, user_id_of, label="MATRIX_USER")
    if not accounts:
        raise ConfigError(f"no character has an account on Matrix: set {', '.join(REQUIRED_VARIABLES)}")
    return MatrixAdapter(map(MatrixAccount, accounts.values()))


async def check_account(settings: Settings, read_cursor: bp.CursorReader) -> CheckReport:
    """Check the account of a character's settings without sending any message."""
    loaded = settings.load(MatrixSettings)
    label = f"{loaded.matrix_user} at {loaded.matrix_homeserver}"
    client = MatrixClient(loaded, settings.network_environment())
    async with client.session:
        try:
            owner = await client.get("account/whoami")
            joined = await client.get("joined_rooms")
        except bp.DeliveryError as error:
            is_about_token = isinstance(error, Refused) and error.is_about_token
            problem = TOKEN_REFUSED if is_about_token else f"{error}: check the network and MATRIX_HOMESERVER"
            return CheckReport(label, exists=False, problems=(problem,))
    problems = []
    if owner.get("user_id") != loaded.matrix_user:
        problems.append(f"MATRIX_TOKEN is that of {owner.get('user_id')}: set MATRIX_USER to it, or take its own token")
    facts: dict[str, str | int] = {
        "device": str(owner.get("device_id") or "none"),
        "rooms": len(joined.get("joined_rooms") or ()),
        "may invite it": ", ".join(loaded.matrix_allowed_inviters) or "no user: set MATRIX_ALLOWED_INVITERS",
    }
    return CheckReport(label, facts=facts, problems=tuple(problems))
