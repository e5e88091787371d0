"""Sending, and the outcome of deliveries if Telegram or the connection fails."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from telegram.error import InvalidToken

import bot.platform as bp
from adapters.telegram.adapter import TYPING_DELAY
from adapters.telegram.client import BotClient
from adapters.telegram.config import Limits, TelegramSettings
from adapters.telegram.emulator import Emulator, Fault, build_refusal, too_many_requests
from adapters.telegram.outgoing import DUPLICATE_NOTICE, split_reply
from adapters.telegram.sending import MessageSender
from bot import Attachment, Choice, Content, MediaKind, Outcome, new_id
from bot.adapter.adapter import FIRST_PAUSE_SECONDS
from bot.models import TextRequest
from bot.testing import model_answer
from tests.adapters.telegram.conftest import START, TOKEN, OpenHarness, SkippingClock, description
from tests.adapters.tls import EXPIRED, GOOD, HOST, behind_tls, through, trusted


class SenderHarness:
    """The sending half of a bot, without a character."""

    def __init__(self, telegram: Emulator, clock: SkippingClock, *, seconds: float = 30.0, **settings: str) -> None:
        limits = Limits(response_timeout=seconds)
        loaded = TelegramSettings.model_validate(
            {"TELEGRAM_BOT_TOKEN": TOKEN, "TELEGRAM_API_BASE_URL": telegram.url, "TELEGRAM_QUOTE": "always", **settings}
        )

        self.telegram, self.clock = telegram, clock
        self.moves: list[tuple[int, int]] = []
        self.account = BotClient(loaded, limits)
        self.status = bp.ConnectionStatus("telegram", "Ada", clock.now)
        self.token_check = bp.TokenCheck(
            self.status, self._is_token_accepted, "the token is refused", clock.time_source
        )
        self.message_sender = MessageSender(
            self.account,
            loaded,
            limits,
            clock.time_source,
            self.token_check,
            lambda old, new: self.moves.append((old, new)),
        )
        self.alice = telegram.people.add_user("Alice")
        self.chat = telegram.people.open_private_chat(self.alice)

    async def _is_token_accepted(self) -> bool:
        try:
            return bool(await self.account.get_me())
        except InvalidToken:
            return False

    def part(
        self,
        content: str | Content = "Hello",
        *,
        chat: Mapping[str, Any] | None = None,
        edits: str = "",
        reply_to: str = "",
    ) -> bp.Delivery:
        content = Content(text=content) if isinstance(content, str) else content
        [content, *_] = split_reply(content)
        target = str((chat or self.chat)["id"])
        ids = [new_id(), new_id(), new_id()]
        return bp.Delivery(
            "d" * 24,
            *ids,
            "telegram",
            "1000001",
            target,
            0,
            content,
            START,
            reply_to=reply_to,
            replaces_external_id=edits,
        )

    @property
    def texts(self) -> list[str]:
        return self.telegram.recorder.texts()


OpenSender = Callable[..., Awaitable[SenderHarness]]


@pytest.fixture
async def telegram() -> AsyncIterator[Emulator]:
    async with Emulator(find_problems=description(), hosts=[HOST, "telegram.example"]) as emulator:
        emulator.add_bot(TOKEN)
        yield emulator
        assert emulator.recorder.problems == []


@pytest.fixture
async def open_sender(telegram: Emulator) -> AsyncIterator[OpenSender]:
    senders: list[SenderHarness] = []

    async def open_sender(clock: SkippingClock | None = None, **settings: Any) -> SenderHarness:
        sender = SenderHarness(telegram, clock or SkippingClock(), **settings)
        await sender.account.open()
        senders.append(sender)
        return sender

    yield open_sender
    for sender in senders:
        await sender.token_check.close()
        await sender.account.close_sessions()


@pytest.fixture
async def sender(open_sender: OpenSender) -> SenderHarness:
    return await open_sender()


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "closed"])
async def test_a_file_for_a_topic_that_cannot_be_written_to_is_sent_whole_to_general(
    sender: SenderHarness, is_deleted: bool
) -> None:
    forum = sender.telegram.people.add_group("Forum", sender.alice, is_forum=True)
    topic = sender.telegram.people.add_topic(forum, sender.alice, "Boats")
    asked = sender.telegram.people.say(forum, sender.alice, "Notes?", thread=topic)
    (sender.telegram.people.delete_topic if is_deleted else sender.telegram.people.close_topic)(forum, topic)
    notes = Content(text="Here.", attachments=(Attachment("1", MediaKind.DOCUMENT, name="notes.txt", data=b"tide"),))
    part = sender.part(notes, chat=forum, reply_to=str(asked["message_id"]))
    await sender.message_sender.deliver(replace(part, target=f"{forum['id']}/{topic}"))
    [shown] = sender.telegram.recorder.messages
    assert (shown.thread, shown.text, shown.files) == (None, "Here.", {"notes.txt": b"tide"})


@pytest.mark.failure("D-01")
@pytest.mark.parametrize("seconds", [0.5, 64.57, 3600])
async def test_a_rate_limited_part_waits_for_retry_after(sender: SenderHarness, seconds: float) -> None:
    sender.telegram.faults.append(too_many_requests("sendMessage", seconds))
    with pytest.raises(bp.NotSent) as caught:
        await sender.message_sender.deliver(sender.part())
    assert caught.value.retry_after == seconds
    other = sender.telegram.people.open_private_chat(sender.telegram.people.add_user("Bob"))
    await sender.message_sender.deliver(sender.part(chat=other))
    assert sender.clock.pauses == [], "another chat does not wait"


@pytest.mark.failure("D-03")
@pytest.mark.parametrize(
    "body",
    [
        "<html>slow down</html>",
        build_refusal(429, "Too Many Requests"),
        build_refusal(429, "Too Many Requests", retry_after=-1),
        build_refusal(429, "Too Many Requests", retry_after=math.nan),
        build_refusal(429, "Too Many Requests", retry_after="soon"),
        [],
    ],
)
async def test_a_rate_limit_without_a_valid_number_waits_five_seconds(sender: SenderHarness, body: object) -> None:
    sender.telegram.faults.append(Fault("sendMessage", 429, body))
    with pytest.raises(bp.NotSent) as caught:
        await sender.message_sender.deliver(sender.part())
    assert caught.value.retry_after == 5.0


@pytest.mark.failure("D-04")
@pytest.mark.parametrize("status", [500, 502, 503, 504, 524])
async def test_a_server_error_is_unclear(sender: SenderHarness, status: int) -> None:
    sender.telegram.faults.append(Fault("sendMessage", status, "<html>oops</html>", is_late=True))
    with pytest.raises(bp.DeliveryUnknown):
        await sender.message_sender.deliver(sender.part())
    assert sender.texts == ["Hello"]


@pytest.mark.failure("D-05")
async def test_a_refused_connection_is_not_sent(sender: SenderHarness) -> None:
    await sender.telegram.__aexit__(None, None, None)
    with pytest.raises(bp.NotSent):
        await sender.message_sender.deliver(sender.part())


@pytest.mark.failure("D-06")
@pytest.mark.parametrize("is_late", [False, True])
async def test_a_reset_after_the_request_is_unclear(sender: SenderHarness, is_late: bool) -> None:
    sender.telegram.faults.append(Fault("sendMessage", is_late=is_late))
    with pytest.raises(bp.DeliveryUnknown):
        await sender.message_sender.deliver(sender.part())


@pytest.mark.failure("D-07")
async def test_an_endless_response_is_cut_off_and_unclear(sender: SenderHarness) -> None:
    sender.telegram.faults.append(Fault("sendMessage", is_endless=True))
    with pytest.raises(bp.DeliveryUnknown):
        await sender.message_sender.deliver(sender.part())


@pytest.mark.failure("D-08")
@pytest.mark.parametrize(
    "body", ["{", "[]", {"ok": True}, {"ok": True, "result": {}}, {"ok": True, "result": {"message_id": "x"}}]
)
async def test_an_invalid_response_is_unclear(sender: SenderHarness, body: object) -> None:
    sender.telegram.faults.append(Fault("sendMessage", 200, body, is_late=True))
    with pytest.raises(bp.DeliveryUnknown):
        await sender.message_sender.deliver(sender.part())


@pytest.mark.failure("D-09")
async def test_a_text_rejected_as_too_long_is_sent_in_halves(sender: SenderHarness) -> None:
    text = "word " * 700
    sender.telegram.faults.append(Fault("sendMessage", 400, build_refusal(400, "Bad Request: message is too long")))
    await sender.message_sender.deliver(sender.part(text.strip()))
    assert " ".join(sender.texts) == text.strip()
    assert len(sender.texts) == 2


@pytest.mark.failure("D-10")
async def test_after_a_confirmed_refusal_nothing_is_sent_until_telegram_accepts_the_token(
    open_sender: OpenSender,
) -> None:
    clock = SkippingClock(held=frozenset({FIRST_PAUSE_SECONDS}))
    sender = await open_sender(clock=clock)
    sender.telegram.faults += [
        Fault(name, 401, build_refusal(401, "Unauthorized")) for name in ("sendMessage", "getMe")
    ]
    for _ in range(3):
        with pytest.raises(bp.NotSent, match="token") as refused:
            await sender.message_sender.deliver(sender.part())
        assert refused.value.retry_after == pytest.approx(FIRST_PAUSE_SECONDS + 1)  # when Telegram was asked again
    assert sender.telegram.recorder.counts["sendMessage"] == 1
    assert sender.status.snapshot.cause is bp.DisconnectCause.REFUSED
    clock.released.set()
    await sender.token_check.wait_accepted()
    assert not sender.status.snapshot.is_problem
    await sender.message_sender.deliver(sender.part())
    assert sender.texts == ["Hello"]


async def test_a_refused_call_whose_refusal_is_not_confirmed_stops_nothing(sender: SenderHarness) -> None:
    sender.telegram.faults.append(Fault("sendMessage", 401, build_refusal(401, "Unauthorized")))
    with pytest.raises(bp.NotSent, match="accepts the token"):
        await sender.message_sender.deliver(sender.part())
    await sender.message_sender.deliver(sender.part())
    assert sender.texts == ["Hello"]
    assert sender.telegram.recorder.counts["getMe"] == 1
    assert not sender.status.snapshot.is_problem


@pytest.mark.parametrize("status", [401, 403, 404, 407, 409])
async def test_the_page_of_a_proxy_is_no_answer_of_telegram(status: int, sender: SenderHarness) -> None:
    sender.telegram.faults.append(Fault("sendMessage", status, "<html><h1>Access denied</h1></html>"))
    with pytest.raises(bp.NotSent, match="proxy"):
        await sender.message_sender.deliver(sender.part())
    await sender.message_sender.deliver(sender.part())
    assert sender.texts == ["Hello"]


@pytest.mark.failure("D-11")
async def test_a_chat_that_blocks_the_bot_is_skipped_until_a_user_writes(sender: SenderHarness) -> None:
    sender.telegram.state.members[sender.chat["id"]][1000001] = "kicked"
    for _ in range(2):
        with pytest.raises(bp.Undeliverable):
            await sender.message_sender.deliver(sender.part())
    assert sender.telegram.recorder.counts["sendMessage"] == 1
    sender.telegram.state.members[sender.chat["id"]][1000001] = "member"
    sender.message_sender.note_user(sender.chat["id"], "")
    await sender.message_sender.deliver(sender.part())
    assert sender.texts == ["Hello"]


@pytest.mark.failure("D-11")
async def test_a_deleted_chat_is_undeliverable(sender: SenderHarness) -> None:
    with pytest.raises(bp.Undeliverable, match="Chat not found"):
        await sender.message_sender.deliver(sender.part(chat={"id": 4711}))


@pytest.mark.failure("D-15")
async def test_a_rejected_file_is_named_and_its_caption_is_sent(sender: SenderHarness) -> None:
    file = Attachment("1", MediaKind.IMAGE, name="boat.png", data=b"no picture")
    sender.telegram.faults.append(Fault("sendPhoto", 400, build_refusal(400, "Bad Request: IMAGE_PROCESS_FAILED")))
    await sender.message_sender.deliver(sender.part(Content(text="A boat.", attachments=(file,))))
    assert sender.texts == ["A boat.\n\n(boat.png could not be sent.)"]


@pytest.mark.failure("M-07")
@pytest.mark.parametrize("address", ["{path}", "file://{path}", "telegram:{bot}/{path}", "telegram:{bot}/secret.txt"])
async def test_a_local_file_named_by_an_attachment_is_never_sent(
    sender: SenderHarness, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret.txt").write_text("sesame")
    monkeypatch.chdir(tmp_path)  # python-telegram-bot reads whatever string is the path of a file
    url = address.format(path=tmp_path / "secret.txt", bot=sender.account.account)
    await sender.message_sender.deliver(sender.part(Content(attachments=(Attachment("1", MediaKind.DOCUMENT, url),))))
    [shown] = sender.telegram.recorder.messages
    assert (shown.text, shown.files) == ("(file could not be sent.)", {})


@pytest.mark.parametrize(
    ("kind", "name", "content_type", "method"),
    [
        (MediaKind.IMAGE, "boat.png", "image/png", "sendPhoto"),
        (MediaKind.DOCUMENT, "boat.pdf", "application/pdf", "sendDocument"),
        (MediaKind.AUDIO, "boat.ogg", "audio/ogg", "sendVoice"),
        (MediaKind.AUDIO, "boat.mp3", "audio/mpeg", "sendAudio"),
        (MediaKind.VIDEO, "boat.mp4", "video/mp4", "sendVideo"),
    ],
)
async def test_a_file_is_sent_by_its_media_kind_with_its_caption(
    sender: SenderHarness, kind: MediaKind, name: str, content_type: str, method: str
) -> None:
    file = Attachment("1", kind, name=name, content_type=content_type, data=b"bytes of a boat")
    await sender.message_sender.deliver(sender.part(Content(text="**A** boat.", attachments=(file,))))
    [shown] = sender.telegram.recorder.messages
    assert shown.text == "A boat."
    assert shown.files == {name: b"bytes of a boat"}
    assert sender.telegram.recorder.counts[method] == 1


async def test_an_unclear_part_is_sent_again_with_a_notice(sender: SenderHarness) -> None:
    part = sender.part("It is **bold**.")
    assert await sender.message_sender.reconcile(part) == "1"
    [shown] = sender.telegram.recorder.messages
    assert shown.text == f"{DUPLICATE_NOTICE}It is bold."
    [bold] = shown.message["entities"]
    assert shown.text[bold["offset"] : bold["offset"] + bold["length"]] == "bold"


async def test_an_unclear_part_that_cannot_be_repeated_now_stays_unclear(sender: SenderHarness) -> None:
    sender.telegram.faults.append(too_many_requests("sendMessage", 600))
    with pytest.raises(bp.DeliveryUnknown, match="600") as caught:
        await sender.message_sender.reconcile(sender.part())
    assert caught.value.retry_after == 600


async def test_with_hold_an_unclear_part_is_left_to_the_operator(open_sender: OpenSender) -> None:
    sender = await open_sender(TELEGRAM_UNCLEAR="hold")
    with pytest.raises(bp.DeliveryHeld, match="hold"):
        await sender.message_sender.reconcile(sender.part())
    assert sender.texts == []


async def test_a_repeated_edit_is_accepted_and_an_empty_edit_deletes(sender: SenderHarness) -> None:
    name = await sender.message_sender.deliver(sender.part("Helo"))
    for _ in range(2):
        assert await sender.message_sender.edit(sender.part("Hello", edits=name)) == name
    assert sender.texts == ["Hello"]
    assert sender.telegram.recorder.messages[0].texts == ["Helo", "Hello"]
    empty = sender.part("x", edits=name)
    empty = replace(empty, content=replace(empty.content, text=""))
    for _ in range(2):
        assert await sender.message_sender.edit(empty) == name
    assert sender.texts == []


async def test_an_edit_of_a_deleted_message_is_undeliverable(sender: SenderHarness) -> None:
    with pytest.raises(bp.MessageGone, match="was deleted"):
        await sender.message_sender.edit(sender.part("Hello", edits="99"))


@pytest.mark.failure("B-14")
async def test_message_ids_of_a_group_are_not_used_in_the_supergroup(sender: SenderHarness) -> None:
    group = sender.telegram.people.add_group("The group", sender.alice, kind="group")
    name = await sender.message_sender.deliver(sender.part("Half a", chat=group))
    new = sender.telegram.people.migrate(group, sender.alice, is_announced=False)
    sender.telegram.state._last_message[new["id"]] = int(name) - 1
    assert await sender.message_sender.deliver(sender.part("Another", chat=new)) == name
    for _ in range(2):
        with pytest.raises(bp.NotSent, match="supergroup"):
            await sender.message_sender.edit(sender.part("Half a word", chat=group, edits=name))
        with pytest.raises(bp.Undeliverable, match="cannot be deleted"):
            await sender.message_sender.edit(sender.part("", chat=group, edits=name))
    assert [item.text for item in sender.telegram.recorder.messages if not item.is_gone] == ["Half a", "Another"]


async def test_a_burst_is_slowed_to_the_chat_limit_and_sent_completely(sender: SenderHarness) -> None:
    group = sender.telegram.people.add_group("The group", sender.alice)
    for number in range(30):
        try:
            await sender.message_sender.deliver(sender.part(f"{number}", chat=group))
        except bp.NotSent as error:
            sender.clock.advance(error.retry_after or 0)
            await sender.message_sender.deliver(sender.part(f"{number}", chat=group))
    assert sender.texts == [str(number) for number in range(30)]
    assert sender.clock.elapsed >= 30 - 1, "ten beyond the twenty of the first minute wait three seconds each"


async def test_a_part_that_has_to_wait_for_the_chat_limit_goes_back_to_the_queue_which_reports_it(
    sender: SenderHarness,
) -> None:
    sender.telegram.faults.append(too_many_requests("sendMessage", 10))
    with pytest.raises(bp.NotSent, match="asks to wait for 10 s"):
        await sender.message_sender.deliver(sender.part())
    with pytest.raises(bp.NotSent, match="rate limits allow no message for 10 s") as caught:
        await sender.message_sender.deliver(sender.part())
    assert (caught.value.retry_after, sender.clock.pauses) == (10, [])


async def test_choices_are_buttons_below_the_last_part(sender: SenderHarness) -> None:
    content = Content(text="word " * 1500, choices=(Choice("Yes", "choice:1"), Choice("No", "choice:2")))
    cut = split_reply(content)
    assert [len(item.choices) for item in cut] == [0, 2]
    await sender.message_sender.deliver(replace(sender.part(), content=cut[-1]))
    rows = sender.telegram.recorder.messages[0].message["reply_markup"]["inline_keyboard"]
    assert [item["callback_data"] for row in rows for item in row] == ["choice:1", "choice:2"]


async def test_a_reply_to_a_deleted_message_is_sent(sender: SenderHarness) -> None:
    await sender.message_sender.deliver(sender.part(reply_to="4711"))
    assert sender.texts == ["Hello"]


async def test_a_guest_names_the_file_that_it_cannot_send(sender: SenderHarness) -> None:
    asked = sender.telegram.people.ask_guest(sender.chat, sender.alice, "@ada_bot the notes, please")
    notes = Content(text="Here.", attachments=(Attachment("1", MediaKind.DOCUMENT, name="notes.txt", data=b"tide"),))
    target = f"{sender.chat['id']}?{asked['guest_query_id']}"
    await sender.message_sender.deliver(replace(sender.part(notes), target=target))
    assert sender.texts == ["Here.\n\n(notes.txt could not be sent.)"]
    await sender.message_sender.deliver(replace(sender.part("They are lost."), target=target))
    [shown] = sender.telegram.recorder.messages
    assert shown.text == "They are lost.", "what follows replaces the only answer of a guest"
    message_id = await sender.message_sender.edit(replace(sender.part("Found.", edits="inline"), target=target))
    assert (shown.text, message_id) == ("Found.", next(iter(sender.telegram.state.inline_messages)))


async def test_a_guest_cannot_answer_what_was_answered_before_its_start(sender: SenderHarness) -> None:
    with pytest.raises(bp.Undeliverable, match="Query is too old"):
        await sender.message_sender.deliver(replace(sender.part(), target=f"{sender.chat['id']}?4711"))


async def test_link_previews_are_disabled(sender: SenderHarness) -> None:
    await sender.message_sender.deliver(sender.part("https://example.com/?secret=x"))
    [call] = sender.telegram.recorder.calls_of("sendMessage")
    assert call["link_preview_options"] == {"is_disabled": True}


async def test_an_unclear_send_is_marked_in_the_chat_and_in_the_ledger(open_harness: OpenHarness) -> None:
    async with open_harness() as harness:
        harness.telegram.faults.append(Fault("sendMessage", is_late=True))
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
        assert await harness.wait_texts(2) == ["You said: Hello", f"{DUPLICATE_NOTICE}You said: Hello"]
        [part] = await harness.wait_deliveries()
        assert part.state is bp.DeliveryState.SENT


async def test_with_hold_an_unclear_send_is_listed(open_harness: OpenHarness) -> None:
    async with open_harness(settings={"TELEGRAM_UNCLEAR": "hold"}) as harness:
        harness.telegram.faults.append(Fault("sendMessage", is_late=True))
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
        [part] = await harness.wait_deliveries()
        assert part.state is bp.DeliveryState.UNKNOWN
        assert harness.telegram.recorder.texts() == ["You said: Hello"]


async def test_the_typing_indicator_is_renewed_while_the_turn_runs(open_harness: OpenHarness) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def script(request: TextRequest) -> str:
        asked.set()
        await go.wait()
        return model_answer("Done.")

    clock = SkippingClock(held=frozenset())
    async with open_harness(script, clock=clock) as harness:
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
        await asked.wait()
        await harness.telegram.recorder.wait_until(lambda: harness.telegram.recorder.counts["sendChatAction"] >= 3)
        go.set()
        assert await harness.wait_texts(1) == ["Done."]


async def test_a_quick_answer_costs_no_typing_request(open_harness: OpenHarness) -> None:
    async with open_harness(clock=SkippingClock(held=frozenset({TYPING_DELAY}))) as harness:
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, "Hello")
        await harness.wait_deliveries()
        assert TYPING_DELAY in harness.clock.pauses
        assert not harness.telegram.recorder.counts["sendChatAction"]


@pytest.mark.failure("D-07")
async def test_a_missing_response_is_unclear(open_sender: OpenSender) -> None:
    sender = await open_sender(seconds=0.2)
    sender.telegram.faults.append(Fault("sendMessage", is_hanging=True))
    with pytest.raises(bp.DeliveryUnknown, match="no response"):
        await sender.message_sender.deliver(sender.part())


async def test_the_proxy_of_the_environment_is_used(
    open_sender: OpenSender, telegram: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", telegram.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    sender = await open_sender(TELEGRAM_API_BASE_URL="http://telegram.example")
    await sender.message_sender.deliver(sender.part())
    assert sender.texts == ["Hello"]


async def test_a_request_rejected_for_its_size_is_not_done(sender: SenderHarness) -> None:
    sender.telegram.faults.append(Fault("sendMessage", 413, "<html>too large</html>"))
    with pytest.raises(bp.Undeliverable, match="413"):
        await sender.message_sender.deliver(sender.part())


@pytest.mark.failure("D-09")
async def test_a_caption_whose_markup_is_refused_keeps_its_file(sender: SenderHarness) -> None:
    file = Attachment("1", MediaKind.IMAGE, name="boat.png", data=b"picture")
    refused = build_refusal(400, "Bad Request: can't parse entities")
    sender.telegram.faults.append(Fault("sendPhoto", 400, refused, required_parameter="caption_entities"))
    await sender.message_sender.deliver(sender.part(Content(text="**A** boat.", attachments=(file,))))
    [shown] = sender.telegram.recorder.messages
    assert (shown.text, shown.files) == ("**A** boat.", {"boat.png": b"picture"})


async def test_an_unsplit_reply_that_failed_halfway_is_not_sent_again(sender: SenderHarness) -> None:
    uncut = replace(sender.part(), content=Content(text="word " * 1500))
    await sender.message_sender.deliver(uncut)
    assert len(sender.texts) == 2
    sender.clock.advance(60)
    sender.telegram.faults.append(too_many_requests("sendMessage", 9, skip_first=1))
    with pytest.raises(bp.DeliveryUnknown, match="beginning"):
        await sender.message_sender.deliver(uncut)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "chat_count", "limit", "seconds"),
    [("supergroup", 1, 20, 60.0), ("private", 70, 30, 1.0), ("private", 1, 65, 60.0)],
    ids=["group", "all chats", "private chat"],
)
async def test_no_period_has_more_messages_than_telegram_accepts(
    kind: str, chat_count: int, limit: int, seconds: float, open_sender: OpenSender
) -> None:
    clock = SkippingClock()
    sender = await open_sender(clock=clock)
    people, sent_at = sender.telegram.people, list[float]()
    members = [people.add_user("Alice") for _ in range(chat_count)]
    is_group = kind == "supergroup"
    chats = [people.add_group("Harbour", user) if is_group else people.open_private_chat(user) for user in members]
    for number in range(140):
        while True:
            try:
                await sender.message_sender.deliver(sender.part(str(number), chat=chats[number % chat_count]))
            except bp.NotSent as error:
                clock.advance(error.retry_after or 1.0)
            else:
                break
        sent_at.append(clock.elapsed)
        clock.advance(0.01 if chat_count > 1 else 0.3)
    most = max(sum(start <= at <= start + seconds for at in sent_at) for start in sent_at)
    assert most <= limit
    assert sent_at[-1] <= 1.1 * 140 / limit * seconds + 1.0  # nor does it wait for longer than it must


# C-14: Telegram behind TLS and the operator's proxy; an unverified server is not used.

__all__ = ["open_sender", "telegram"]


def port_of(telegram: Emulator) -> int:
    return urlsplit(telegram.url).port or 0


@pytest.mark.failure("C-14")
@pytest.mark.parametrize(
    ("certificate", "believed", "host"),
    [(EXPIRED, EXPIRED, HOST), (GOOD, EXPIRED, HOST), (GOOD, None, HOST), (GOOD, GOOD, "other.example")],
    ids=["expired", "not trusted", "not known", "of another host"],
)
async def test_an_invalid_certificate_is_rejected(
    certificate: str,
    believed: str | None,
    host: str,
    open_sender: OpenSender,
    telegram: Emulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with behind_tls(port_of(telegram), tmp_path, certificate) as way:
        through(way, monkeypatch, trusted(tmp_path, believed) if believed else "")
        sender = await open_sender(TELEGRAM_API_BASE_URL=f"https://{host}")
        with pytest.raises(bp.NotSent, match="its certificate is not valid"):
            await sender.message_sender.deliver(sender.part())
        assert way.asked == [f"{host}:443"]
        assert sender.texts == []


@pytest.mark.failure("C-14")
async def test_a_custom_certificate_is_accepted_through_the_operators_proxy(
    open_sender: OpenSender, telegram: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_tls(port_of(telegram), tmp_path) as way:
        through(way, monkeypatch, trusted(tmp_path, GOOD))
        sender = await open_sender(TELEGRAM_API_BASE_URL=f"https://{HOST}")
        await sender.message_sender.deliver(sender.part())
        assert sender.texts == ["Hello"]
        assert way.asked == [f"{HOST}:443"]


@pytest.mark.failure("C-14")
async def test_an_unverified_server_is_not_used(open_sender: OpenSender, telegram: Emulator) -> None:
    sender = await open_sender(TELEGRAM_API_BASE_URL=telegram.url.replace("http:", "https:"))
    with pytest.raises(bp.NotSent, match="TLS could not be agreed on"):
        await sender.message_sender.deliver(sender.part())
    assert sender.texts == []


# Reactions of the bot on Telegram: those that a chat allows, replaced, removed, refused.


def react(emoji: str) -> str:
    return model_answer(actions=["REACT"], parameters={"emoji": emoji})


@pytest.mark.parametrize(
    ("allowed", "meant", "shown"),
    [
        (None, "👍", "👍"),
        (None, "❤️", "❤"),
        (None, "🥳", "🔥"),
        (("❤", "🔥"), "🎉", "🔥"),
        (("👎",), "🎉", ""),
        ((), "👍", ""),
    ],
)
async def test_the_nearest_reaction_that_the_chat_allows_is_set(
    open_harness: OpenHarness, allowed: tuple[str, ...] | None, meant: str, shown: str
) -> None:
    async with open_harness(react(meant)) as harness:
        alice, state = harness.people.add_user("Alice"), harness.telegram.state
        group = harness.people.add_group("The pier", alice)
        if allowed is not None:
            state.available_reactions[group["id"]] = allowed
        message = harness.people.say(group, alice, "@ada_bot thank you")
        [delivery] = await harness.wait_deliveries()
        assert delivery.state is (bp.DeliveryState.SENT if shown else bp.DeliveryState.FAILED)
        assert [receipt.outcome for receipt in await harness.wait_receipts()] == [Outcome.ANSWERED]
        reactions = state.reactions.get((group["id"], message["message_id"]), {})
        assert reactions == ({harness.bot.id: shown} if shown else {})
        assert harness.telegram.recorder.messages == []


async def test_prompts_name_what_a_chat_allows_once_it_has_refused_a_reaction(open_harness: OpenHarness) -> None:
    async with open_harness(react("😱")) as harness:
        alice, state = harness.people.add_user("Alice"), harness.telegram.state
        group, silent = (harness.people.add_group(name, alice) for name in ("The pier", "The lock"))
        state.available_reactions = {group["id"]: ("👍", "🔥"), silent["id"]: ()}
        for chat in (group, group, silent, silent):
            harness.people.say(chat, alice, "@ada_bot thank you")
            await harness.wait_deliveries()
        offered = [("React to" in request.prompt, "👍 🔥" in request.prompt) for request in harness.model.requests]
    assert [is_offered for is_offered, _ in offered] == [True, True, True, False]


@pytest.mark.parametrize("second", ["🔥", ""])
async def test_the_answer_to_an_edit_replaces_or_removes_the_reaction(open_harness: OpenHarness, second: str) -> None:
    answers = [react("👍"), react(second) if second else model_answer("Oh no.")]
    async with open_harness(answers, settings={"ON_EDIT": "rerun"}) as harness:
        alice = harness.people.add_user("Alice")
        message = harness.people.say(harness.people.open_private_chat(alice), alice, "it works")
        await harness.wait_deliveries()
        harness.people.edit(message, "it does not work")
        await harness.wait_deliveries()
        reactions = harness.telegram.state.reactions[message["chat"]["id"], message["message_id"]]
        assert list(reactions.values()) == [second] * bool(second)
        assert harness.telegram.recorder.texts() == ([] if second else ["Oh no."])


async def test_a_message_that_is_gone_gets_no_reaction(open_harness: OpenHarness) -> None:
    async with open_harness(lambda request: harness.telegram.state.messages.clear() or react("👍")) as harness:
        alice = harness.people.add_user("Alice")
        harness.people.say(harness.people.open_private_chat(alice), alice, "thank you")
        [delivery] = await harness.wait_deliveries()
        assert delivery.state is bp.DeliveryState.CANCELLED
