"""Whom we may answer; opt-outs; forbidden content."""

import json
import re
import unicodedata

from adapters.x.client import XClient
from adapters.x.config import XSettings
from adapters.x.connection import Refused
from adapters.x.incoming import CONTEXT
from adapters.x.outgoing import ACT, REPLY, SUBJECT
from adapters.x.payloads import Post
from adapters.x.state import Notes
from bot import ConfigError, Entity, Receipt
from bot.platform import Delivery, Door, NotSent, Unclear, Undeliverable

NOTE = "opt-outs"
STOPS = frozenset(
    {
        "stop", "stop it", "please stop", "stop replying", "stop replying to me", "stop answering me",
        "unsubscribe", "opt out", "optout", "leave me alone", "go away", "don't reply to me",
        "do not reply to me", "don't answer me", "no more replies",
    }
)  # fmt: skip
STARTS = frozenset({"start", "opt in", "optin", "subscribe", "you may reply"})
_NOISE = re.compile(r"@\w{1,15}|[^\w'\s]")


def said(text: str) -> str:
    """Give what somebody says in so many words, without names and marks."""
    return " ".join(_NOISE.sub(" ", text.casefold().replace("’", "'").replace("opt-", "opt ")).split())


def is_stop(text: str) -> bool:
    """Tell whether somebody asks to be left alone."""
    return said(text) in STOPS


def is_start(text: str) -> bool:
    """Tell whether somebody takes that back."""
    return said(text) in STARTS


class OptOuts:
    """The list: the operator's handles, and the numbers of those who have said it themselves."""

    def __init__(self, settings: XSettings, notes: Notes) -> None:
        self._handles = frozenset(one.lstrip("@").casefold() for one in settings.x_opt_out_users)
        self._notes = notes
        self._ids: frozenset[str] = frozenset()

    async def load(self) -> None:
        """Find who has said it before; raises ConfigError where that cannot be read."""
        try:
            self._ids = frozenset(map(str, json.loads(await self._notes.read(NOTE) or "[]")))
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"who does not want to hear from us on X cannot be read ({error}): see `bot db check`"
            ) from None

    def __bool__(self) -> bool:
        return bool(self._ids or self._handles)

    def has(self, user_id: str, handle: str) -> bool:
        """Tell whether somebody is on the list."""
        return user_id in self._ids or handle.casefold() in self._handles

    async def hear(self, user_id: str, text: str) -> bool:
        """Change the list where that is what somebody says; tells whether it was."""
        stops = is_stop(text)
        if not stops and not is_start(text):
            return False
        ids = self._ids | {user_id} if stops else self._ids - {user_id}
        if ids != self._ids:
            await self._notes.write(NOTE, json.dumps(sorted(ids)))
            self._ids = ids
        return True


MOST_RECEIPTS = 200
OPT_OUT = "opt-out"
TARGETS = "X_TARGET_USERS"
UNASKED = frozenset({CONTEXT, OPT_OUT, TARGETS})


class Consent:
    """The rules of one account; a check raises Undeliverable where something may not be sent."""

    def __init__(self, door: Door, client: XClient, settings: XSettings, opt_outs: OptOuts) -> None:
        self._records = door.records
        self._client = client
        self._opt_outs = opt_outs
        self._targets = frozenset(one.lstrip("@").casefold() for one in settings.x_target_users)

    def denied_by(self, person: Entity) -> str:
        """Name the rule that forbids answering somebody who mentions us; blank where none does."""
        handle = handle_of(person)
        if self._opt_outs.has(person.external_id, handle):
            return OPT_OUT
        everybody = not self._targets or "*" in self._targets
        return "" if everybody or handle.casefold() in self._targets else TARGETS

    async def addressee(self, delivery: Delivery) -> str:
        """Find the post that something is said to; blank for what is said on our own timeline."""
        metadata = delivery.content.metadata
        if metadata.get(ACT) == REPLY:
            return str(metadata[SUBJECT])
        if delivery.reply_to or delivery.target == delivery.account:
            return delivery.reply_to
        latest = await self._records.receipts(room_id=delivery.room_id, limit=MOST_RECEIPTS)
        asked = (one.key.message_id for one in latest if one.rule not in UNASKED)
        return next(asked, delivery.target)

    async def check_reply(self, delivery: Delivery, post_id: str) -> None:
        """Refuse a reply to somebody who has not mentioned us, or does not want one."""
        receipts = await self._records.receipts(room_id=delivery.room_id, limit=MOST_RECEIPTS)
        receipt = next((one for one in receipts if one.key.message_id == post_id), None)
        if receipt is None or receipt.rule in UNASKED:
            await self._check_stranger(post_id)
        elif (person := await self._author(receipt)) is not None:
            self._check_person(person.external_id, handle_of(person))

    async def check_post(self, post_id: str) -> None:
        """Refuse to quote, like or repost what somebody wrote who does not want that."""
        if self._opt_outs:
            post, handle = await self._looked_up(post_id)
            self._check_person(post.author_id, handle)

    async def _check_stranger(self, post_id: str) -> None:
        """Look at a post that has not come as a mention: it must name us, or be from somebody listed."""
        post, handle = await self._looked_up(post_id)
        self._check_person(post.author_id, handle)
        account = self._client.account
        is_ours = post.author_id == account or post.mentions(account)
        if not is_ours and handle.casefold() not in self._targets:
            raise Undeliverable(
                f"post {post_id} does not mention us, and its author is not in {TARGETS}: X allows replies "
                "only to those who want them"
            )

    async def _looked_up(self, post_id: str) -> tuple[Post, str]:
        """Read a post and its author's handle."""
        try:
            page = await self._client.posts([post_id])
        except Refused as error:
            raise Undeliverable(f"post {post_id} cannot be looked at: {error}") from error
        except Unclear as error:  # only looking was unclear: nothing has been sent
            raise NotSent(f"post {post_id} could not be looked at: {error}") from error
        if not page.posts:
            raise Undeliverable(f"there is no post {post_id} on X, or it cannot be seen")
        [post, *_] = page.posts
        person = page.people.get(post.author_id)
        return post, person.username if person else ""

    def _check_person(self, user_id: str, handle: str) -> None:
        if self._opt_outs.has(user_id, handle):
            raise Undeliverable(f"{handle or user_id} does not want to hear from us ({OPT_OUT})")

    async def _author(self, receipt: Receipt) -> Entity | None:
        message = await self._records.message(receipt.memory_id)
        if message is None:
            return None
        return (await self._records.authors([message])).get(receipt.author_id)


def handle_of(person: Entity) -> str:
    """Give somebody's handle, as X tells it."""
    return str(person.metadata.get("username", ""))


KEYS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bgh[opsru]_[A-Za-z0-9]{30,}|\bxox[abprs]-[A-Za-z0-9-]{10,}|\b\d{6,12}:[A-Za-z0-9_-]{30,}"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\."
)
MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
PHONE = re.compile(r"(?<![\w+/=])(?:\+|00)\d(?:[ ()./-]{0,2}\d){7,13}(?!\d)")
BANK = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
CARD = re.compile(r"(?<![\w/=])\d(?:[ -]?\d){12,18}(?!\d)")


class Policy:
    """What one account keeps to in all that it posts."""

    def __init__(self, settings: XSettings) -> None:
        self._own = {_bare(one) for one in settings.x_contacts}
        self._words = [
            (one, re.compile(rf"(?<!\w){re.escape(_folded(one))}(?!\w)"))
            for one in settings.x_forbidden_words
        ]

    def fault(self, text: str) -> str:
        """Say why a text may not be posted; blank where it may."""
        plain = unicodedata.normalize("NFKC", text)
        if KEYS.search(plain):
            return "it holds what looks like a key or a token"
        if any(_is_bank(_bare(one)) for one in BANK.findall(plain)):
            return "it holds the number of a bank account"
        if any(_is_card(_bare(one)) for one in CARD.findall(plain)):
            return "it holds the number of a bank card"
        for what, pattern in (("a mail address", MAIL), ("a telephone number", PHONE)):
            if any(_bare(one) not in self._own for one in pattern.findall(plain)):
                return f"it holds {what} that X_CONTACTS does not name"
        folded = _folded(text)
        word = next((one for one, pattern in self._words if pattern.search(folded)), "")
        return f"it holds {word!r}, which X_FORBIDDEN_WORDS names" if word else ""


def _bare(text: str) -> str:
    return re.sub(r"[ ()./-]", "", text) if "@" not in text else text.casefold()


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _is_card(digits: str) -> bool:
    doubled = [int(one) * (2 if place % 2 else 1) for place, one in enumerate(reversed(digits))]
    return sum(one - 9 if one > 9 else one for one in doubled) % 10 == 0


def _is_bank(account: str) -> bool:
    return int("".join(str(int(one, 36)) for one in account[4:] + account[:4])) % 97 == 1
