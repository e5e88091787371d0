"""State of the emulated platform, and the record of what it has shown and received."""

import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from bot import Clock
from bot.testing.emulator import MessageRecorder

EPOCH = 1_420_070_400_000
NONCE_WINDOW = timedelta(minutes=5)
TEXT, DM, VOICE, CATEGORY, NEWS, NEWS_THREAD, THREAD, PRIVATE_THREAD, STAGE, FORUM = (0, 1, 2, 4, 5, 10, 11, 12, 13, 15)
THREADS = (NEWS_THREAD, THREAD, PRIVATE_THREAD)
ADMINISTRATOR, DEFAULT_PERMISSIONS = "8", "1099515939840"
USER_MENTION = re.compile(r"<@!?(\d+)>")
ROLE_MENTION = re.compile(r"<@&(\d+)>")

Json = dict[str, Any]


class PlatformState:
    """All objects of the platform in the form of Discord's API, without fields that have their default value."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.users: dict[str, Json] = {}
        self.tokens: dict[str, str] = {}  # user id of a bot by token
        self.guilds: dict[str, Json] = {}
        self.channels: dict[str, Json] = {}
        self.messages: dict[str, dict[str, Json]] = {}
        self.webhooks: dict[str, Json] = {}
        self.direct_bots: dict[str, str] = {}  # with several bots: the bot of each direct channel
        # by message, then by emoji as texts have it: who reacted
        self.reactions: defaultdict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
        self._nonces: dict[tuple[str, str], tuple[datetime, str]] = {}
        self._count = 0

    def new_id(self, timestamp: datetime | None = None) -> str:
        """Return a snowflake id, which contains its time and is unique within its millisecond."""
        self._count += 1
        milliseconds = int((timestamp or self.clock()).timestamp() * 1000) - EPOCH
        return str((milliseconds << 22) | (self._count & 0x3FFFFF))

    def add_user(self, name: str, *, is_bot: bool = False, nickname: str = "") -> str:
        """Add a user or a bot; return its id."""
        user_id = self.new_id()
        self.users[user_id] = {
            "id": user_id,
            "username": name.lower(),
            "global_name": nickname or name,
            "discriminator": "0000" if is_bot else "0",
            "avatar": None,
            "bot": is_bot,
        }
        return user_id

    def add_guild(
        self, name: str, owner: str, members: Sequence[str] = (), *, created_at: datetime | None = None
    ) -> str:
        """Add a guild; return its id, which contains its time and so decides on its shard."""
        guild_id = self.new_id(created_at)
        everyone = {"id": guild_id, "name": "@everyone", "permissions": DEFAULT_PERMISSIONS, "position": 0}
        self.guilds[guild_id] = {
            "id": guild_id,
            "name": name,
            "owner_id": owner,
            "verification_level": 0,
            "default_message_notifications": 0,
            "roles": [everyone],
            "member_count": 1 + len(members),
            "joined_at": self.clock().isoformat(),
            "members": [],
            "emojis": [],
        }
        for user_id in dict.fromkeys((owner, *members)):
            self.add_member(guild_id, user_id)
        return guild_id

    def add_member(self, guild_id: str, user_id: str, nickname: str | None = None) -> Json:
        """Add a user to a guild."""
        member: Json = {
            "user": self.users[user_id],
            "nick": nickname,
            "roles": [],
            "joined_at": self.clock().isoformat(),
            "flags": 0,
        }
        self.guilds[guild_id]["members"].append(member)
        return member

    def add_role(
        self, guild_id: str, name: str, holder: str, *, permissions: str = ADMINISTRATOR, bot: str = ""
    ) -> str:
        """Add a role and give it to a member; return its id. `bot` is the bot whose own role it is."""
        role_id = self.new_id()
        roles = self.guilds[guild_id]["roles"]
        role = {"id": role_id, "name": name, "permissions": permissions, "position": len(roles)}
        roles.append({**role, "managed": True, "tags": {"bot_id": bot}} if bot else role)
        member = self.find_member(guild_id, holder)
        if member is not None:
            member["roles"].append(role_id)
        return role_id

    def add_channel(
        self, guild_id: str | None, name: str, kind: int = TEXT, parent: str | None = None, *, message_id: str = ""
    ) -> str:
        """Add a channel, a thread or, without a guild, a direct channel; return its id.

        A thread of a message has the id of that.
        """
        channel_id = message_id or self.new_id()
        channel: Json = {"id": channel_id, "type": kind, "name": name, "last_message_id": None, "flags": 0}
        if guild_id is not None:
            channel.update(guild_id=guild_id, position=0, permission_overwrites=[], parent_id=parent)
        if kind in THREADS and guild_id is not None:
            now = self.clock().isoformat()
            thread_data = {"archived": False, "auto_archive_duration": 1440, "archive_timestamp": now, "locked": False}
            owner = self.guilds[guild_id]["owner_id"]
            channel.update(owner_id=owner, thread_metadata=thread_data, message_count=0, member_count=1)
        if kind in (VOICE, STAGE):
            channel.update(bitrate=64000, user_limit=0, rtc_region=None)
        self.channels[channel_id] = channel
        self.messages[channel_id] = {}
        return channel_id

    def add_emoji(self, guild_id: str, name: str) -> str:
        """Add an emoji to a guild; return it as texts have it."""
        emoji_id = self.new_id()
        self.guilds[guild_id]["emojis"].append({"id": emoji_id, "name": name, "available": True, "roles": []})
        return f"<:{name}:{emoji_id}>"

    def open_direct_channel(self, bot: str, person: str) -> str:
        """Add the direct channel of a bot and a person; return its id."""
        name = f"{self.users[bot]['global_name']} and {self.users[person]['global_name']}"
        channel = self.add_channel(None, name, DM)
        self.channels[channel]["recipients"] = [self.users[person]]
        self.direct_bots[channel] = bot
        return channel

    def remove_member(self, guild_id: str, user_id: str) -> None:
        """Remove a user from a guild."""
        members = self.guilds[guild_id]["members"]
        members[:] = [member for member in members if member["user"]["id"] != user_id]

    def find_member(self, guild_id: str, user_id: str) -> Json | None:
        """Find a member of a guild."""
        members = self.guilds[guild_id]["members"] if guild_id in self.guilds else ()
        return next((member for member in members if member["user"]["id"] == user_id), None)

    def to_guild_create(self, guild_id: str, bot_id: str) -> Json:
        """Return a guild in the form of GUILD_CREATE, with the bot as its only member."""
        channels = [channel for channel in self.channels.values() if channel.get("guild_id") == guild_id]
        bot_member = self.find_member(guild_id, bot_id)
        return {
            **self.guilds[guild_id],
            "members": [bot_member] if bot_member else [],
            "channels": [channel for channel in channels if channel["type"] not in THREADS],
            "threads": [channel for channel in channels if channel["type"] in THREADS],
            "unavailable": False,
        }

    def add_message(
        self,
        channel_id: str,
        author: str,
        text: str,
        *,
        reply_to: str | None = None,
        timestamp: datetime | None = None,
        **fields: Any,
    ) -> Json:
        """Store a message and return it as an API object."""
        channel = self.channels[channel_id]
        reply_fields: Json = {}
        mentioned = self.mentioned_in(text)
        if reply_to:
            reference = {"type": 0, "message_id": reply_to, "channel_id": channel_id}
            original = self.messages[channel_id].get(reply_to)
            if original is not None:
                original = {name: value for name, value in original.items() if name != "referenced_message"}
                mentioned += [original["author"]] if original["author"] not in mentioned else []
            reply_fields = {"message_reference": reference, "referenced_message": original}
        message = self.build_message(channel_id, author, text, timestamp)
        message |= {
            "mentions": mentioned,
            "mention_roles": ROLE_MENTION.findall(text),
            "type": 19 if reply_fields else 0,
            **reply_fields,
            **fields,
        }
        if (guild_id := channel.get("guild_id")) is not None:
            message["guild_id"] = guild_id
            if member := self.find_member(guild_id, author):
                message["member"] = {name: value for name, value in member.items() if name != "user"}
        self.messages[channel_id][message["id"]] = message
        channel["last_message_id"] = message["id"]
        return message

    def build_message(self, channel_id: str, author: str, text: str, timestamp: datetime | None = None) -> Json:
        """Return a message as an API object, without storing it."""
        return {
            "id": self.new_id(timestamp),
            "channel_id": channel_id,
            "author": self.users[author],
            "content": text,
            "timestamp": (timestamp or self.clock()).isoformat(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "components": [],
            "pinned": False,
            "type": 0,
            "flags": 0,
        }

    def mentioned_in(self, text: str) -> list[Json]:
        """Return the users that a text mentions, each once."""
        return [self.users[user_id] for user_id in dict.fromkeys(USER_MENTION.findall(text)) if user_id in self.users]

    def find_nonce(self, author: str, nonce: str) -> str:
        """Find the message that an author has sent with a nonce within NONCE_WINDOW."""
        stored_at, message_id = self._nonces.get((author, nonce), (None, ""))
        return message_id if stored_at is not None and self.clock() - stored_at <= NONCE_WINDOW else ""

    def store_nonce(self, author: str, nonce: str, message_id: str) -> None:
        """Store the nonce of a message."""
        self._nonces[author, nonce] = (self.clock(), message_id)

    def history(self, channel_id: str, after: int, before: int) -> list[Json]:
        """List the messages of a channel between two ids, oldest first."""
        live_fields = ("guild_id", "member", "nonce")  # the history has no such fields
        messages = self.messages[channel_id]
        return [
            {name: value for name, value in messages[message_id].items() if name not in live_fields}
            for message_id in sorted(messages, key=int)
            if after < int(message_id) < before
        ]


class Recorder(MessageRecorder):
    """Records what the bots have sent, and counts events."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, str, Any]] = []
        self.commands: list[Json] = []
        self.responses: dict[str, list[Json]] = {}  # by interaction: the messages that answered it


def notified_by(body: Json, replied_to: str = "") -> set[str]:
    """Return whom a message notifies, by Discord's rules for `allowed_mentions`."""
    text, allowed = body.get("content") or "", body.get("allowed_mentions")
    users, roles = set(USER_MENTION.findall(text)), {f"role:{role_id}" for role_id in ROLE_MENTION.findall(text)}
    everyone = {"everyone"} if re.search(r"@(everyone|here)", text) else set()
    if allowed is None:
        return users | roles | everyone | ({replied_to} if replied_to else set())
    parse = allowed.get("parse") or []
    notified = users if "users" in parse else users & set(map(str, allowed.get("users") or ()))
    notified |= roles if "roles" in parse else roles & {f"role:{role_id}" for role_id in allowed.get("roles") or ()}
    notified |= everyone if "everyone" in parse else set()
    return notified | ({replied_to} if replied_to and allowed.get("replied_user") else set())
