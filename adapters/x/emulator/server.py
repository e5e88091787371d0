"""The server of the emulator, fault injection, `start_emulator`, and what the contract of adapters drives.

The emulated posts on the chat page.
"""

import asyncio
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import format_datetime
from enum import StrEnum
from mimetypes import guess_extension
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aiohttp import web

from adapters.x.emulator.rest import ApiError, ApiRequest, Keys, RestServer, SignedHeader
from adapters.x.emulator.state import MAX_USERNAME_LENGTH, PlatformState, PostForbidden, PostRecord, to_username
from adapters.x.rate_limits import endpoint_of
from bot import Clock, system_clock, testing

TIMELINE = "timeline"
HINT = "Mention a character, or reply to it. It polls its mentions every few seconds."
CONVERSATION_HINT = "What you write here replies to the newest post."
CONVERSATIONS = "Conversations"
HEART = "♥"
MAX_TITLE_LENGTH = 40
PICTURE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
MAX_PICTURES = 4


class XView(testing.EmulatorActions):
    """One timeline of all posts, and the conversations among them, for every user that is no character."""

    platform = "X"
    max_length = 1000
    abilities = frozenset(
        {testing.Ability.DELETE, testing.Ability.REACT, testing.Ability.FILES, testing.Ability.ADD_PERSON}
    )
    emojis = (HEART,)

    def __init__(self, state: PlatformState, bots: Mapping[str, str]) -> None:
        self._state, self._bots = state, bots

    def rooms(self) -> Sequence[testing.EmulatorRoom]:
        """List the timeline, then the conversations, those with the newest post first."""
        people = tuple(
            testing.EmulatorUser(number, f"@{name}")
            for number, name in self._state.usernames.items()
            if number not in self._bots
        )
        posts = self._visible_posts()
        newest = {post.conversation_id: post.id for post in posts}
        sizes = Counter(post.conversation_id for post in posts)
        conversations = [key for key in sorted(newest, key=lambda key: -int(newest[key])) if sizes[key] > 1]
        return [
            testing.EmulatorRoom(TIMELINE, "all posts", people, HINT, newest=posts[-1].id if posts else ""),
            *(
                testing.EmulatorRoom(key, self._title_of(key), people, CONVERSATION_HINT, CONVERSATIONS, newest[key])
                for key in conversations
            ),
        ]

    def bots(self) -> Sequence[testing.EmulatorUser]:
        mentions = [f"@{name}" for name in self._bots.values()]
        return [testing.EmulatorUser(mention, mention) for mention in mentions]

    def messages(self, room_id: str) -> Sequence[testing.EmulatorMessage]:
        return [
            self._to_page_message(post) for post in self._visible_posts() if room_id in (TIMELINE, post.conversation_id)
        ]

    def read_file(self, file_id: str) -> testing.FileContent | None:
        picture = self._state.pictures.get(file_id)
        if picture is None:
            return None
        content_type = str(picture["type"] or "image/png")
        return testing.FileContent(f"picture{guess_extension(content_type) or ''}", content_type, picture["data"])

    async def send_files(
        self, room_id: str, user_id: str, text: str, reply_to: str, files: Sequence[testing.FileContent]
    ) -> None:
        """Create a post; in a conversation it replies to the newest one.

        The characters see pictures by their names only, for they have no address.
        """
        if len(files) > MAX_PICTURES or any(file.content_type not in PICTURE_TYPES for file in files):
            raise testing.ActionRefused(f"a post has at most {MAX_PICTURES} pictures, and no other files")
        keys = []
        for file in files:
            keys.append(key := self._state.new_id())
            self._state.pictures[key] = {"data": file.data, "type": file.content_type, "alt": file.name, "url": ""}
        posts = [post.id for post in self._visible_posts() if post.conversation_id == room_id]
        reply_to_id = reply_to or next(reversed(posts), "")
        try:
            self._state.create_post(user_id, text, reply_to_id=reply_to_id, pictures=tuple(keys))
        except PostForbidden as error:
            raise testing.ActionRefused(str(error)) from error

    async def delete_message(self, room_id: str, message_id: str) -> None:
        self._state.posts[message_id].is_deleted = True

    async def toggle_reaction(self, room_id: str, user_id: str, message_id: str, emoji: str) -> None:
        """Like a post, or take that back; X does not tell its author's program."""
        self._state.posts[message_id].likes ^= {user_id}

    async def add_person(self, name: str) -> None:
        username = to_username(name)
        if not username:
            raise testing.ActionRefused("a name on X consists of Latin letters, digits and _")
        self._state.user_id_of(username)

    def _visible_posts(self) -> list[PostRecord]:
        return [post for post in self._state.posts.values() if not post.is_deleted]

    def _title_of(self, conversation_id: str) -> str:
        text = " ".join(self._state.posts[conversation_id].text.split())
        return text if len(text) <= MAX_TITLE_LENGTH else f"{text[: MAX_TITLE_LENGTH - 1]}…"

    def _to_page_message(self, post: PostRecord) -> testing.EmulatorMessage:
        replied_post = self._state.posts.get(post.reply_to_id)
        notes = [f"in answer to @{self._state.usernames[replied_post.author_id]}"] if replied_post else []
        counts = {"like": post.likes, "repost": post.reposts, "picture": post.pictures}
        notes += [f"{len(items)} {name}{'s' * (len(items) > 1)}" for name, items in counts.items() if items]
        notes += ["quotes a post"] if post.quoted_id else []
        return testing.EmulatorMessage(
            post.id,
            f"@{self._state.usernames[post.author_id]}",
            post.text,
            is_bot=post.author_id in self._bots,
            note=", ".join(notes),
            user_id=post.author_id,
            at=post.created_at.isoformat(),
            reply_to=post.reply_to_id,
            files=tuple(map(self._to_file, post.pictures)),
            reactions=((HEART, tuple(sorted(post.likes))),) if post.likes else (),
            thread=post.conversation_id,
        )

    def _to_file(self, key: str) -> testing.EmulatorFile:
        picture = self._state.pictures[key]
        content_type = str(picture["type"] or "image/png")
        return testing.EmulatorFile(key, str(picture["alt"] or "picture"), content_type, len(picture["data"]))


HOSTS = ("api.x.com", "api.twitter.com", "upload.twitter.com")
USERNAME = "greenroom_bot"
DEFAULT_LIMIT = (10_000, 900.0)
MAX_ANSWER_LENGTH = 1250  # of an answer that fits into MAX_REPLY_POSTS posts
MAX_CLOCK_SKEW = timedelta(minutes=5)
# Inside the emulator there are other users, reading is free, posts are to be seen, and mentions are polled
# as often as possible.
NEUTRAL_SETTINGS = {
    "X_TARGET_USERS": "",
    "X_DRY_RUN": "",
    "X_POLL_INTERVAL": "5",
    "X_MONTHLY_READS": "100000",
    "X_MONTHLY_POSTS": "100000",
    "X_POST_DAILY_CAP": "100000",
}


class FaultKind(StrEnum):
    """How a call fails."""

    REFUSED = "refused"  # answered with `status`; not executed
    LOST = "lost"  # executed; then the connection breaks
    CUT = "cut"  # the connection breaks; not executed
    BROKEN = "broken"  # executed; the response is no JSON
    FAILED = "failed"  # executed; answered with `status`
    HANGING = "hanging"  # not executed and never answered
    PASSED = "passed"  # no fault: the one after it is for the next call


SEND_FAULTS = {
    testing.SendFault.REFUSED: FaultKind.REFUSED,
    testing.SendFault.LOST_BEFORE: FaultKind.CUT,
    testing.SendFault.LOST_AFTER: FaultKind.LOST,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the next call to an endpoint, such as `POST /2/tweets`."""

    endpoint: str
    kind: FaultKind = FaultKind.REFUSED
    status: int = 503
    body: str = '{"title": "Service Unavailable"}'
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """One received call and the status of its response."""

    endpoint: str
    path: str
    body: dict[str, Any]
    status: int
    received_at: datetime

    @property
    def since_id(self) -> int:
        """The post after which a list was asked for; 0 without one."""
        return int(parse_qs(urlsplit(self.path).query).get("since_id", ["0"])[0])

    @property
    def is_write(self) -> bool:
        """Whether the call would change something."""
        return not self.endpoint.startswith("GET ")


class Emulator(testing.EmulatorServer):
    """An emulated X for one account or more; `environment` has the variables of a bot that uses the first.

    `limits` are the calls that an account may make to an endpoint within a number of seconds,
    `monthly_reads` the posts it may read in a month. Each of `faults` applies once.
    """

    def __init__(
        self,
        *,
        clock: Clock = system_clock,
        username: str = USERNAME,
        limits: dict[str, tuple[int, float]] | None = None,
        monthly_reads: int | None = None,
        port: int = 0,
        hosts: Iterable[str] = HOSTS,
    ) -> None:
        super().__init__(port=port, hosts=hosts)
        self._clock = clock
        self.limits = dict(limits or {})
        self.monthly_reads = monthly_reads
        self.state = PlatformState(clock)
        self._accounts: dict[str, Keys] = {}
        self._bots: dict[str, str] = {}
        self.user_id = self.add_account(username).user_id
        self.calls: list[Call] = []
        self.faults: deque[Fault] = deque()
        self.reads: Counter[str] = Counter()  # by month
        self.reset_override: Callable[[datetime], str] | None = None  # builds the reset header from the end of a window
        self.is_revoked = False
        self.max_bound_age = timedelta.max  # of the post in `since_id` or `until_id`
        self.clock_offset = timedelta()  # how far X's clock is ahead of the one that signs the requests
        self._rest = RestServer(self.state)
        self._windows: dict[tuple[str, str], tuple[datetime, int]] = {}
        self._nonces: set[str] = set()
        self.recorder = testing.EventRecorder()
        self.page = self.open_page(XView(self.state, self._bots), self.recorder)

    def routes(self) -> Sequence[web.AbstractRouteDef]:
        """Return the routes of the API."""
        return [web.route("*", "/2/{path:.*}", self._serve)]

    def endpoints(self) -> list[str]:
        """Return the calls of the API, with `:id` for an id in the path."""
        return self._rest.endpoints()

    def add_account(self, username: str) -> Keys:
        """Create an account; return the keys with which a bot uses it."""
        keys = Keys(self.state.user_id_of(username))
        self._accounts[keys.token] = keys
        self._bots[keys.user_id] = username
        return keys

    def environment_of(self, keys: Keys) -> dict[str, str]:
        """Return the variables with which a bot uses this emulator and account."""
        return {
            "X_API_BASE_URL": self.url,
            "X_API_KEY": keys.api_key,
            "X_API_SECRET": keys.api_secret,
            "X_ACCESS_TOKEN": keys.token,
            "X_ACCESS_TOKEN_SECRET": keys.token_secret,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the first account."""
        return self.environment_of(next(iter(self._accounts.values())))

    @property
    def writes(self) -> list[Call]:
        """Every call that would have changed something."""
        return [call for call in self.calls if call.is_write]

    @property
    def bot_texts(self) -> list[str]:
        """The posts of the first account, oldest first."""
        return [post.text for post in self.state.posts_by(self.user_id)]

    def say(
        self, username: str, text: str, *, reply_to_id: str = "", quoted_id: str = "", is_sensitive: bool = False
    ) -> str:
        """Create a post as a user; return its id."""
        author_id = self.state.user_id_of(username)
        post = self.state.create_post(
            author_id, text, reply_to_id=reply_to_id, quoted_id=quoted_id, is_sensitive=is_sensitive
        )
        return post.id

    def add_faults(self, *faults: Fault) -> None:
        """Add faults for the next calls."""
        self.faults.extend(faults)

    async def wait_until(self, predicate: Callable[[], bool]) -> None:
        """Wait until a condition holds, checked after every call."""
        await self.recorder.wait_until(predicate)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        endpoint = endpoint_of(request.method, request.path)
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            body = {}
        fault = next((candidate for candidate in self.faults if candidate.endpoint == endpoint), None)
        if fault is None:
            fault = Fault(endpoint, FaultKind.PASSED)
        else:
            self.faults.remove(fault)
        if fault.kind is FaultKind.HANGING:
            await asyncio.Event().wait()
        if fault.kind in (FaultKind.REFUSED, FaultKind.CUT):
            status, text, headers = fault.status, fault.body, dict(fault.headers)
        else:
            status, text, headers = self._respond(request, endpoint, body)
        if fault.kind is FaultKind.FAILED:
            status, text = fault.status, fault.body
        elif fault.kind is FaultKind.BROKEN:
            text = "<html>"
        self.calls.append(Call(endpoint, request.path_qs, body, status, self._clock()))
        try:
            if fault.kind in (FaultKind.CUT, FaultKind.LOST) and request.transport is not None:
                request.transport.abort()
            if signed_at := SignedHeader(request.headers.get("Authorization", "")).signed_at:
                headers.setdefault("Date", format_datetime(signed_at + self.clock_offset, usegmt=True))
            return web.Response(status=status, text=text, headers=headers, content_type="application/json")
        finally:
            self.recorder.record(endpoint)

    def _respond(self, request: web.Request, endpoint: str, body: dict[str, Any]) -> tuple[int, str, dict[str, str]]:
        user_id = ""
        try:
            user_id = self._authenticate(request)
            headers = self._count_call((user_id, endpoint))
            self._check_bounds(request)
            api_request = ApiRequest(user_id, request.path, dict(request.query), body)
            status, payload = self._rest.handle(endpoint, api_request)
            self._count_reads(payload)
        except ApiError as problem:
            headers = self._headers((user_id, endpoint)) if problem.status == 429 else {}
            return problem.status, json.dumps(problem.body), headers
        return status, json.dumps(payload), headers

    def _check_bounds(self, request: web.Request) -> None:
        """Raise ApiError if a bound names a post that is too old."""
        for name in ("since_id", "until_id"):
            post = self.state.posts.get(request.query.get(name, ""))
            if post is not None and self._clock() - post.created_at > self.max_bound_age:
                raise ApiError(400, "Invalid Request", f"'{name}' must be a tweet id created after 7 days ago")

    def _authenticate(self, request: web.Request) -> str:
        """Return the account of a call; raise ApiError if its signature is invalid."""
        signed = SignedHeader(request.headers.get("Authorization", ""))
        url = f"https://{request.headers.get('Host', '')}{request.raw_path}"
        keys = self._accounts.get(signed.token)
        problem = signed.find_problem(request.method, url, keys)
        if self.is_revoked:
            problem = "the token was revoked"
        if not problem and abs(self.clock_offset) > MAX_CLOCK_SKEW:
            problem = "Timestamp out of bounds."
        if not problem and signed.nonce in self._nonces:
            problem = "the nonce was used before"
        if problem or keys is None:
            raise ApiError(401, "Unauthorized", problem)
        self._nonces.add(signed.nonce)
        return keys.user_id

    def _count_call(self, window: tuple[str, str]) -> dict[str, str]:
        limit, seconds = self.limits.get(window[1], DEFAULT_LIMIT)
        now = self._clock()
        window_end, used_calls = self._windows.get(window, (now, 0))
        if window_end <= now:
            window_end, used_calls = now + timedelta(seconds=seconds), 0
        self._windows[window] = (window_end, used_calls + 1)
        if used_calls >= limit:
            raise ApiError(429, "Too Many Requests", "Too Many Requests")
        return self._headers(window)

    def _headers(self, window: tuple[str, str]) -> dict[str, str]:
        limit, _ = self.limits.get(window[1], DEFAULT_LIMIT)
        window_end, used_calls = self._windows.get(window, (self._clock(), 0))
        reset = self.reset_override(window_end) if self.reset_override else str(int(window_end.timestamp()) + 1)
        return {
            "x-rate-limit-limit": str(limit),
            "x-rate-limit-remaining": str(max(limit - used_calls, 0)),
            "x-rate-limit-reset": reset,
        }

    def _count_reads(self, payload: dict[str, Any]) -> None:
        month = self._clock().strftime("%Y-%m")
        items = payload.get("data")
        cost = len(items) if isinstance(items, list) else 0
        cost += len(payload.get("includes", {}).get("tweets", []))
        if self.monthly_reads is not None and cost and self.reads[month] + cost > self.monthly_reads:
            raise ApiError(429, "UsageCapExceeded", "Usage cap exceeded: Monthly product cap")
        self.reads[month] += cost


class XControl(testing.PlatformControl):
    """One person who replies to a post of the first account, which has read a reply once it asks for newer ones."""

    def __init__(self, emulator: Emulator, settings: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__()
        self.url, self.settings, self.page = f"{emulator.url}/", settings, emulator.page
        self.changes = emulator.recorder
        self.max_answer_length = MAX_ANSWER_LENGTH
        self._emulator, self._state = emulator, emulator.state
        self._root = ""  # the post of the account that the person replies to
        self._posts: dict[str, str] = {}  # by event
        self._delivered: list[tuple[str, int]] = []  # events, and after how many polls they were posted
        self._acknowledged: list[str] = []

    async def post(
        self, text: str, *, message_id: str, event_id: str, revision: int = 0, files: Mapping[str, str] | None = None
    ) -> None:
        """Reply to a post of the account, or return a reply to its next poll again."""
        if revision or files:
            raise NotImplementedError  # posts of people are not edited, and have pictures only
        polls = len(self._read_bounds())
        if event_id in self._posts:
            self._state.repeated.add(self._posts[event_id])
        else:
            self._root = self._root or self._state.create_post(self._emulator.user_id, "Ask me anything.").id
            self._posts[event_id] = self._emulator.say("kim", text, reply_to_id=self._root)
        self._delivered.append((event_id, polls))

    def acknowledged(self) -> Sequence[str]:
        """Return the events after which the account has asked for newer posts."""
        bounds = self._read_bounds()
        for event in list(self._delivered):
            event_id, polls = event
            post_id = self._posts[event_id]
            if post_id not in self._state.repeated and any(bound >= int(post_id) for bound in bounds[polls + 1 :]):
                self._delivered.remove(event)
                self._acknowledged.append(event_id)
        return self._acknowledged

    def shown(self) -> Sequence[str]:
        """Return the replies of the account."""
        return [post.text for post in self._state.posts_by(self._emulator.user_id) if post.id != self._root]

    def fail_next_send(self, fault: testing.SendFault) -> None:
        """Make the next post fail in this way."""
        self._emulator.add_faults(Fault("POST /2/tweets", SEND_FAULTS[fault]))

    def _read_bounds(self) -> Sequence[int]:
        """Return the post after which each poll of the account asked for mentions, in order."""
        return [call.since_id for call in self._emulator.calls if call.endpoint == "GET /2/users/:id/mentions"]


@asynccontextmanager
async def start_emulator(names: Sequence[str], *, port: int = 0) -> AsyncIterator[XControl]:
    """Run an emulator with these characters and two users.

    `settings` override the settings of each character; the page is for people.
    """
    usernames = _build_usernames(names)
    async with Emulator(username=usernames[0] if usernames else "nobody", port=port) as emulator:
        accounts = {name: emulator.add_account(username) for name, username in zip(names, usernames, strict=True)}
        for person_name in ("robin", "kim"):
            emulator.state.user_id_of(person_name)
        settings = {name: {**NEUTRAL_SETTINGS, **emulator.environment_of(keys)} for name, keys in accounts.items()}
        yield XControl(emulator, settings)


def _build_usernames(names: Sequence[str]) -> list[str]:
    """Return a distinct username for each character."""
    usernames: list[str] = []
    for name in names:
        username = to_username(name) or "bot"
        while username in usernames:
            username = f"{username[: MAX_USERNAME_LENGTH - 2]}_{len(usernames)}"
        usernames.append(username)
    return usernames
