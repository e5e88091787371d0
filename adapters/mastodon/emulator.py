"""An emulated Mastodon on localhost: for tests, for plugin authors, and for trying a character.

Written after the published description of the API (docs.joinmastodon.org, version 4.4).
"""

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

from aiohttp import web

from adapters.mastodon.incoming import Instance
from adapters.mastodon.outgoing import count_characters
from bot import Clock, system_clock, testing

USERNAME = "greenroom_bot"
MAX_CHARACTERS = 500
HINT = "Mention a character, or reply to it. A message that begins with ! is direct: only those it mentions see it."
# Inside the emulator nothing waits for an interval.
NEUTRAL_SETTINGS = {"MASTODON_POLL_INTERVAL": "60", "MASTODON_ALLOWED_FOLLOWERS": ""}
_MENTION = re.compile(r"(?<![=/\w])@(\w+)(?:@[\w.:-]*\w)?")
_URL = re.compile(r"https?://[^\s<]+")
Json = dict[str, Any]


class ApiError(Exception):
    """The server refuses a call with this status; the text is its explanation."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(slots=True)
class PostRecord:
    """One post."""

    id: str
    author: str
    text: str
    created_at: datetime
    visibility: str = "public"
    warning: str = ""
    reply_to_id: str = ""
    media_ids: tuple[str, ...] = ()
    poll: tuple[str, ...] = ()
    edited_at: datetime | None = None
    is_deleted: bool = False
    favourites: set[str] = field(default_factory=set)


@dataclass(slots=True)
class MediaRecord:
    """One file; it is processed once it was asked for `delay` times."""

    data: bytes
    name: str
    content_type: str
    description: str
    delay: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """One received call."""

    endpoint: str
    query: Mapping[str, str]
    body: Json
    key: str
    username: str
    id: str  # in the path


Respond = Callable[[Call], Any]


class Emulator(testing.EmulatorServer):
    """An emulated Mastodon for one account or more; `environment` has the variables of a bot that uses the first.

    Each of `faults` applies to the next calls of its endpoint, such as `POST /api/v1/statuses`.
    """

    cancels_handlers = True

    def __init__(
        self, *, clock: Clock = system_clock, username: str = USERNAME, port: int = 0, hosts: Iterable[str] = ()
    ) -> None:
        super().__init__(port=port, hosts=hosts)
        self._clock = clock
        self._numbers = count(1001)
        self.accounts: dict[str, Json] = {}  # by username
        self.tokens: dict[str, str] = {}
        self.posts: dict[str, PostRecord] = {}
        self.media: dict[str, MediaRecord] = {}
        self.notifications: dict[str, list[Json]] = {}
        self.repeated: set[str] = set()  # notifications that the next call returns although they were read
        self.keys: dict[tuple[str, str], str] = {}
        self.blocked: set[tuple[str, str]] = set()  # blocker, blocked
        self.accepted_followers: list[str] = []
        self.media_delay = 0
        self.has_streams = True
        self.calls: list[Call] = []
        self.faults: list[testing.FaultResponse] = []
        self.recorder = testing.EventRecorder()
        self._streams: dict[str, list[asyncio.Queue[str]]] = {}
        self.username = username
        self.add_account(username)
        self.page = self.open_page(MastodonView(self), self.recorder)

    def routes(self) -> Sequence[web.AbstractRouteDef]:
        """Return the routes of the API."""
        api: Sequence[tuple[str, str, Respond]] = [
            ("GET", "v1/accounts/verify_credentials", lambda call: self._show_account(call.username)),
            ("GET", "v1/accounts/{id}/statuses", self._list_posts),
            ("GET", "v2/instance", lambda call: self._show_instance()),
            ("GET", "v1/notifications", self._list_notifications),
            ("POST", "v2/media", self._store_media),
            ("GET", "v1/media/{id}", self._show_processing),
            ("POST", "v1/follow_requests/{id}/authorize", self._accept_follower),
            ("POST", "v1/statuses", self._create),
            ("GET", "v1/statuses/{id}", lambda call: self._show(self._find_post(call))),
            ("GET", "v1/statuses/{id}/context", lambda call: self._show_thread(self._find_post(call))),
            ("PUT", "v1/statuses/{id}", self._replace),
            ("DELETE", "v1/statuses/{id}", self._delete),
            ("POST", "v1/statuses/{id}/favourite", self._favourite),
            ("POST", "v1/statuses/{id}/unfavourite", self._unfavourite),
        ]
        return [
            web.get("/api/v1/streaming/user", self._stream),
            web.get("/media/{media_id}", self._serve_media),
            *(web.route(method, f"/api/{path}", partial(self._serve, respond)) for method, path, respond in api),
        ]

    async def stop_tasks(self) -> None:
        """End all streams."""
        for username in list(self._streams):
            self.break_streams(username)

    def add_account(self, username: str, *, is_bot: bool = True, locked: bool = False) -> str:
        """Create an account with a token of its own; return the token."""
        if username not in self.accounts:
            self.accounts[username] = {
                "id": self._new_id(),
                "username": username,
                "acct": username,
                "display_name": username.capitalize(),
                "bot": is_bot,
                "locked": locked,
                "note": "<p>I am an AI.</p>" if is_bot else "",
            }
            self.tokens[f"token-of-{username}"] = username
        return f"token-of-{username}"

    def environment_of(self, username: str) -> dict[str, str]:
        """Return the variables with which a bot uses this emulator and account."""
        return {"MASTODON_SERVER": self.url, "MASTODON_TOKEN": f"token-of-{username}"}

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the first account."""
        return self.environment_of(self.username)

    def posts_by(self, username: str) -> list[PostRecord]:
        """Return the posts of an account that were not deleted, oldest first."""
        return [post for post in self.posts.values() if post.author == username and not post.is_deleted]

    @property
    def bot_posts(self) -> list[PostRecord]:
        """The posts of the first account."""
        return self.posts_by(self.username)

    @property
    def bot_texts(self) -> list[str]:
        """The texts of the first account's posts, without the mentions that they begin with."""
        return [re.sub(r"^(@[\w.:@-]+\s*)+", "", post.text) for post in self.bot_posts]

    def say(self, username: str, text: str, *, is_bot: bool = False, **values: Any) -> str:
        """Create a post as a user, notify whom it mentions, and return its id; `values` are those of `PostRecord`."""
        self.add_account(username, is_bot=is_bot)
        post = PostRecord(self._new_id(), username, text, values.pop("created_at", self._clock()), **values)
        self.posts[post.id] = post
        for name in self._mentioned(text):
            if name != username:
                self._notify(name, "mention", username, post)
        self.recorder.record("say")
        return post.id

    def edit(self, post_id: str, text: str) -> None:
        """Edit a post as its author."""
        post = self.posts[post_id]
        post.text, post.edited_at = text, self._clock()
        for name in self._mentioned(text):
            self._send_event(name, "status.update", json.dumps(self._show(post)))
        self.recorder.record("edit")

    def delete(self, post_id: str) -> None:
        """Delete a post as its author."""
        post = self.posts[post_id]
        post.is_deleted = True
        for name in self._mentioned(post.text):
            self._send_event(name, "delete", post_id)
        self.recorder.record("delete")

    def react(self, username: str, kind: str, post_id: str) -> None:
        """Favourite or boost a post: `kind` is `favourite` or `reblog`."""
        self.add_account(username, is_bot=False)
        self.posts[post_id].favourites.add(username)
        self._notify(self.posts[post_id].author, kind, username, self.posts[post_id])

    def ask_to_follow(self, username: str, followed: str) -> None:
        """Ask to follow a locked account."""
        self.add_account(username, is_bot=False)
        self._notify(followed, "follow_request", username)

    def break_streams(self, username: str) -> None:
        """End the open streams of an account."""
        for queue in self._streams.pop(username, ()):
            queue.put_nowait("")

    def is_streaming(self, username: str) -> bool:
        """Return whether an account has a stream open."""
        return bool(self._streams.get(username))

    def send_again(self, username: str, notification_id: str) -> None:
        """Deliver a notification that was read already once more."""
        self.repeated.add(notification_id)
        self._send_event(username, "notification", "{}")

    async def wait_until(self, predicate: Any) -> None:
        """Wait until a condition holds, checked after every call."""
        await self.recorder.wait_until(predicate)

    def _new_id(self) -> str:
        return str(next(self._numbers))

    def _mentioned(self, text: str) -> list[str]:
        return list(dict.fromkeys(name for name in _MENTION.findall(text) if name in self.accounts))

    def _notify(self, username: str, kind: str, author: str, post: PostRecord | None = None) -> None:
        if (username, author) in self.blocked:
            return
        number = self._new_id()
        item: Json = {"id": number, "type": kind, "created_at": self._clock().isoformat(), "author": author}
        self.notifications.setdefault(username, []).append({**item, "post": post.id if post else ""})
        self._send_event(username, "notification", json.dumps({"id": number, "type": kind}))

    def _send_event(self, username: str, name: str, data: str) -> None:
        for queue in self._streams.get(username, ()):
            queue.put_nowait(f"event: {name}\ndata: {data}\n\n")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        username = self._find_user(request)
        if not username or not self.has_streams:
            return web.json_response({"error": "no stream"}, status=404 if username else 401)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._streams.setdefault(username, []).append(queue)
        text = ":)\n\n"
        try:
            while text:
                await response.write(text.encode())
                self.recorder.record("stream")
                text = await queue.get()
        finally:
            if queue in self._streams.get(username, ()):
                self._streams[username].remove(queue)
        return response

    async def _serve_media(self, request: web.Request) -> web.StreamResponse:
        media = self.media.get(request.match_info["media_id"])
        if media is None:
            return web.Response(status=404)
        return web.Response(body=media.data, content_type=media.content_type)

    async def _serve(self, respond: Respond, request: web.Request) -> web.StreamResponse:
        body: Json = {}
        if request.content_type.startswith("multipart/"):
            body = dict(await request.post())
        elif request.can_read_body:
            body = await request.json()
        key, post_id = request.headers.get("Idempotency-Key", ""), request.match_info.get("id", "")
        endpoint = f"{request.method} {request.path}"
        call = Call(endpoint, dict(request.query), body, key, self._find_user(request), post_id)
        self.calls.append(call)
        fault = next((item for item in self.faults if item.match == endpoint and item.times > 0), None)
        try:
            if fault is not None and not fault.is_late:
                return await fault.respond(request)
            try:
                if not call.username:
                    raise ApiError(401, "The access token is invalid")
                payload = respond(call)
                status, payload = payload if isinstance(payload, tuple) else (200, payload)
            except ApiError as error:
                status, payload = error.status, {"error": str(error)}
            return await fault.respond(request) if fault is not None else web.json_response(payload, status=status)
        finally:
            self.recorder.record(endpoint)

    def _find_user(self, request: web.Request) -> str:
        return self.tokens.get(request.headers.get("Authorization", "").removeprefix("Bearer "), "")

    def _accept_follower(self, call: Call) -> Json:
        self.accepted_followers.append(self._username_of(call.id))
        return {}

    def _favourite(self, call: Call) -> Json:
        post = self._find_post(call)
        post.favourites.add(call.username)
        return self._show(post)

    def _unfavourite(self, call: Call) -> Json:
        post = self._find_post(call)
        post.favourites.discard(call.username)
        return self._show(post)

    def _delete(self, call: Call) -> Json:
        post = self._find_post(call)
        post.is_deleted = True
        return self._show(post)

    def _username_of(self, account_id: str) -> str:
        return next((name for name, item in self.accounts.items() if item["id"] == account_id), "")

    def _list_notifications(self, call: Call) -> list[Json]:
        """Return those that follow `min_id`, newest first; without it, the latest."""
        items, min_id = self.notifications.get(call.username, []), call.query.get("min_id", "")
        if min_id:
            after = [item for item in items if int(item["id"]) > int(min_id)][:40]
            again = [item for item in items if item["id"] in self.repeated and int(item["id"]) <= int(min_id)]
        else:
            after, again = items[-40:], []
        self.repeated.clear()
        return [self._show_notification(item) for item in reversed([*again, *after])]

    def _show_notification(self, item: Json) -> Json:
        post = self.posts.get(item["post"])
        shown = {"id": item["id"], "type": item["type"], "created_at": item["created_at"]}
        return {**shown, "account": self._show_account(item["author"]), "status": self._show(post) if post else None}

    def _list_posts(self, call: Call) -> list[Json]:
        posts, max_id = self.posts_by(self._username_of(call.id)), call.query.get("max_id", "")
        older = [post for post in posts if not max_id or int(post.id) < int(max_id)]
        return [self._show(post) for post in reversed(older[-40:])]

    def _store_media(self, call: Call) -> tuple[int, Json]:
        file = call.body["file"]
        media_id, data = self._new_id(), file.file.read()
        self.media[media_id] = MediaRecord(
            data, file.filename, file.content_type, str(call.body.get("description", "")), self.media_delay
        )
        return (202 if self.media_delay else 200), self._show_media(media_id)

    def _show_processing(self, call: Call) -> tuple[int, Json]:
        media = self.media.get(call.id)
        if media is None:
            raise ApiError(404, "Record not found")
        media.delay = max(media.delay - 1, 0)
        return (206 if media.delay else 200), self._show_media(call.id)

    def _create(self, call: Call) -> Json:
        username, body, key = call.username, call.body, call.key
        if key and (username, key) in self.keys:
            return self._show(self.posts[self.keys[username, key]])
        text, warning = str(body.get("status") or ""), str(body.get("spoiler_text") or "")
        self._check(text, warning, body.get("media_ids") or ())
        reply_to_id = str(body.get("in_reply_to_id") or "")
        if reply_to_id:
            self._find_post(replace(call, id=reply_to_id))
        post_id = self.say(
            username,
            text,
            is_bot=True,
            visibility=body.get("visibility", "public"),
            warning=warning,
            reply_to_id=reply_to_id,
            media_ids=tuple(body.get("media_ids") or ()),
        )
        if key:
            self.keys[username, key] = post_id
        return self._show(self.posts[post_id])

    def _replace(self, call: Call) -> Json:
        post, body = self._find_post(call), call.body
        if post.author != call.username:
            raise ApiError(403, "This action is not allowed")
        text, media_ids = str(body.get("status") or ""), tuple(body.get("media_ids") or ())
        self._check(text, str(body.get("spoiler_text") or ""), media_ids)
        post.text, post.warning, post.media_ids = text, str(body.get("spoiler_text") or ""), media_ids
        post.edited_at = self._clock()
        return self._show(post)

    def _check(self, text: str, warning: str, media_ids: Sequence[str]) -> None:
        if not text.strip() and not media_ids:
            raise ApiError(422, "Validation failed: Text can't be blank")
        if count_characters(text, Instance()) + len(warning) > MAX_CHARACTERS:
            raise ApiError(422, f"Validation failed: Text character limit of {MAX_CHARACTERS} exceeded")

    def _find_post(self, call: Call) -> PostRecord:
        """Return a post that the account of a call may see."""
        post, username = self.posts.get(call.id), call.username
        if post is None or post.is_deleted or (post.author, username) in self.blocked:
            raise ApiError(404, "Record not found")
        if post.visibility == "direct" and username not in (post.author, *self._mentioned(post.text)):
            raise ApiError(404, "Record not found")
        return post

    def _show_instance(self) -> Json:
        statuses = {"max_characters": MAX_CHARACTERS, "max_media_attachments": 4, "characters_reserved_per_url": 23}
        media = {"supported_mime_types": ["image/png", "image/jpeg", "video/mp4", "audio/mpeg"]}
        urls = {"streaming": self.url.replace("http", "ws", 1)}
        configuration = {"statuses": statuses, "media_attachments": media, "urls": urls}
        return {"domain": self.url.partition("//")[2], "version": "4.4.0", "configuration": configuration}

    def _show_account(self, username: str) -> Json:
        return {**self.accounts[username], "url": f"{self.url}/@{username}"}

    def _show_media(self, media_id: str) -> Json:
        media, url = self.media[media_id], f"{self.url}/media/{media_id}"
        kind = media.content_type.partition("/")[0]
        return {"id": media_id, "type": kind, "url": url, "description": media.description or None}

    def _show(self, post: PostRecord) -> Json:
        replied = self.posts.get(post.reply_to_id)
        mentions = [self._show_account(name) for name in self._mentioned(post.text)]
        ids = [media_id for media_id in post.media_ids if media_id in self.media]
        return {
            "id": post.id,
            "created_at": post.created_at.isoformat(),
            "edited_at": post.edited_at.isoformat() if post.edited_at else None,
            "account": self._show_account(post.author),
            "content": self._render(post.text),
            "spoiler_text": post.warning,
            "visibility": post.visibility,
            "url": f"{self.url}/@{post.author}/{post.id}",
            "in_reply_to_id": replied.id if replied else None,
            "in_reply_to_account_id": self.accounts[replied.author]["id"] if replied else None,
            "mentions": [{name: item[name] for name in ("id", "username", "acct", "url")} for item in mentions],
            "media_attachments": [self._show_media(media_id) for media_id in ids],
            "poll": {"options": [{"title": title} for title in post.poll]} if post.poll else None,
        }

    def _show_thread(self, post: PostRecord) -> Json:
        ancestors: list[PostRecord] = []
        above = self.posts.get(post.reply_to_id)
        while above is not None and not above.is_deleted:
            ancestors.insert(0, above)
            above = self.posts.get(above.reply_to_id)
        below = {post.id}
        for item in self.posts.values():
            if item.reply_to_id in below and not item.is_deleted:
                below.add(item.id)
        descendants = [self.posts[post_id] for post_id in below if post_id != post.id]
        return {"ancestors": list(map(self._show, ancestors)), "descendants": list(map(self._show, descendants))}

    def _render(self, text: str) -> str:
        """Return a text as the server's HTML."""

        def link_mention(match: re.Match[str]) -> str:
            if (name := match[1]) not in self.accounts:
                return match[0]
            address = f"{self.url}/@{name}"
            return f'<span class="h-card"><a href="{address}" class="u-url mention">@<span>{name}</span></a></span>'

        def link_url(match: re.Match[str]) -> str:
            host, slash, path = match[0].partition("://")[2].partition("/")
            hidden = '<span class="invisible">'
            shown = f"{hidden}https://</span><span>{host}{slash}</span>{hidden}{path}</span>"
            return f'<a href="{match[0]}" rel="nofollow noopener" target="_blank">{shown}</a>'

        escaped = _MENTION.sub(link_mention, _URL.sub(link_url, html.escape(text, quote=False)))
        return "".join(f"<p>{part.replace(chr(10), '<br />')}</p>" for part in re.split(r"\n{2,}", escaped))


class MastodonView(testing.EmulatorActions):
    """One timeline of all posts, for every account that is no character."""

    platform = "Mastodon"
    max_length = MAX_CHARACTERS

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator

    def rooms(self) -> Sequence[testing.EmulatorRoom]:
        accounts = self._emulator.accounts.items()
        people = tuple(testing.EmulatorUser(name, f"@{name}") for name, account in accounts if not account["bot"])
        return [testing.EmulatorRoom("timeline", "all posts", people, HINT)]

    def bots(self) -> Sequence[testing.EmulatorUser]:
        accounts = self._emulator.accounts.items()
        return [testing.EmulatorUser(f"@{name}", f"@{name}") for name, account in accounts if account["bot"]]

    def messages(self, room_id: str) -> Sequence[testing.EmulatorMessage]:
        return [self._to_page_message(post) for post in self._emulator.posts.values() if not post.is_deleted]

    async def send_message(self, room_id: str, user_id: str, text: str, reply_to: str) -> str:
        is_direct = text.startswith("!") or (
            reply_to in self._emulator.posts and self._emulator.posts[reply_to].visibility == "direct"
        )
        visibility = "direct" if is_direct else "public"
        if reply_to in self._emulator.posts and (author := self._emulator.posts[reply_to].author) != user_id:
            text = text if f"@{author}" in text else f"@{author} {text}"
        self._emulator.say(user_id, text.removeprefix("!").strip(), visibility=visibility, reply_to_id=reply_to)
        return ""

    def _to_page_message(self, post: PostRecord) -> testing.EmulatorMessage:
        account = self._emulator.accounts[post.author]
        notes = [post.visibility, *([f"content warning: {post.warning}"] if post.warning else [])]
        return testing.EmulatorMessage(
            post.id,
            f"@{post.author}",
            post.text,
            is_bot=account["bot"],
            note=", ".join(notes),
            user_id=post.author,
            at=post.created_at.isoformat(),
            reply_to=post.reply_to_id,
            is_edited=post.edited_at is not None,
            thread=self._room_of(post),
        )

    def _room_of(self, post: PostRecord) -> str:
        """Return the name that the adapter gives to the room of a post."""
        if post.visibility == "direct":
            return f"direct:{post.author}@{self._emulator.url.partition('//')[2]}"
        while post.reply_to_id in self._emulator.posts:
            post = self._emulator.posts[post.reply_to_id]
        return f"status:{post.id}"


class MastodonControl(testing.PlatformControl):
    """One person who writes direct posts to the first account, which has read one once it asks for newer ones."""

    def __init__(self, emulator: Emulator, username: str, settings: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__()
        self.url, self.settings, self.page = f"{emulator.url}/", settings, emulator.page
        self.changes = emulator.recorder
        self._emulator, self._username = emulator, username
        self._notifications: dict[str, str] = {}  # by event
        self._delivered: list[tuple[str, int]] = []  # events, and after how many calls they were delivered
        self._acknowledged: list[str] = []

    async def post(
        self, text: str, *, message_id: str, event_id: str, revision: int = 0, files: Mapping[str, str] | None = None
    ) -> None:
        """Write to the account, or deliver a notification again."""
        if revision or files:
            raise NotImplementedError  # an edit is no notification; text files cannot be attached
        polls = len(self._read_bounds())
        if (number := self._notifications.get(event_id)) is not None:
            self._emulator.send_again(self._username, number)
        else:
            self._emulator.say("kim", f"@{self._username} {text}", visibility="direct")
            self._notifications[event_id] = self._emulator.notifications[self._username][-1]["id"]
        self._delivered.append((event_id, polls))

    def acknowledged(self) -> Sequence[str]:
        """Return the events after which the account has asked for newer notifications."""
        bounds = self._read_bounds()
        for event in list(self._delivered):
            event_id, polls = event
            number = self._notifications[event_id]
            if number not in self._emulator.repeated and any(bound >= int(number) for bound in bounds[polls + 1 :]):
                self._delivered.remove(event)
                self._acknowledged.append(event_id)
        return self._acknowledged

    def shown(self) -> Sequence[str]:
        """Return the posts of the account, without the mention that they begin with."""
        return self._emulator.bot_texts

    def fail_next_send(self, fault: testing.SendFault) -> None:
        """Make the next post fail in this way."""
        soon = (self._emulator._clock() + timedelta(seconds=1)).isoformat()
        is_refused = fault is testing.SendFault.REFUSED
        self._emulator.faults.append(
            testing.FaultResponse(
                "POST /api/v1/statuses",
                429 if is_refused else 0,
                headers={"X-RateLimit-Reset": soon} if is_refused else {},
                is_late=fault is testing.SendFault.LOST_AFTER,
            )
        )

    def _read_bounds(self) -> Sequence[int]:
        """Return the notification after which each call asked for newer ones, in order."""
        calls = (call for call in self._emulator.calls if call.endpoint == "GET /api/v1/notifications")
        return [int(call.query.get("min_id", "0")) for call in calls]


@asynccontextmanager
async def start_emulator(names: Sequence[str], *, port: int = 0) -> AsyncIterator[MastodonControl]:
    """Run an emulator with these characters and two users."""
    usernames: list[str] = []
    for name in names:
        username = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower() or "bot"
        usernames.append(username if username not in usernames else f"{username}_{len(usernames)}")
    async with Emulator(username=usernames[0] if usernames else "nobody", port=port) as emulator:
        for username in usernames:
            emulator.add_account(username)
        for person in ("robin", "kim"):
            emulator.add_account(person, is_bot=False)
        settings = {
            name: {**NEUTRAL_SETTINGS, **emulator.environment_of(username)}
            for name, username in zip(names, usernames, strict=True)
        }
        yield MastodonControl(emulator, emulator.username, settings)
