"""Splitting a reply into posts without mentions."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.x import outgoing
from bot import Attachment, Content, MediaKind, new_id
from bot.platform import PostOperation, PostOperationKind

SENTENCE = "The tide comes in twice a day, and nobody has to ask it to. "
WORDS = st.lists(
    st.sampled_from(
        ["fog", "日本語", "👨‍👩‍👧‍👦", "https://example.com/" + "a" * 60, "end.", "So!", "e\u0301e\u0301", "\n"]
    ),
    max_size=120,
)


def test_a_text_that_fits_is_a_single_post() -> None:
    assert outgoing.split_text("Short.") == ["Short."]


def test_a_long_text_is_cut_where_sentences_end() -> None:
    pieces = outgoing.split_text(SENTENCE * 12)
    assert len(pieces) == 3
    assert all(piece.endswith("to.") for piece in pieces)
    assert " ".join(pieces) == (SENTENCE * 12).strip()


@pytest.mark.failure("D-16")
@given(WORDS.map(" ".join))
def test_no_piece_is_too_long_and_no_character_is_split(text: str) -> None:
    pieces = outgoing.split_text(text)
    assert all(outgoing.text_weight(piece) <= outgoing.MAX_WEIGHT for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split()).replace("e\u0301", "é")
    assert all(piece.count("👨") == piece.count("👨‍👩‍👧‍👦") for piece in pieces)


@pytest.mark.failure("D-16")
@given(st.text(max_size=1500))
def test_any_text_can_be_split(text: str) -> None:
    pieces = outgoing.split_text(text)
    assert all(outgoing.text_weight(piece) <= outgoing.MAX_WEIGHT or len(piece) == 1 for piece in pieces)


@pytest.mark.parametrize("end", ['." ', ".) ", ".” ", ". "])
@pytest.mark.parametrize("length", range(276, 283))
def test_a_sentence_that_ends_at_the_limit_fits_with_its_quotation_mark(end: str, length: int) -> None:
    start = ("word " * 56)[:length].rstrip()
    text = start + "x" * (length - len(start)) + end + "Then he went home and slept for the whole day."
    assert max(outgoing.text_weight(part.text) for part in outgoing.split_reply(Content(text=text))) <= 280


def test_a_reply_has_at_most_five_posts_and_other_texts_any_number() -> None:
    content = Content(text=SENTENCE * 100)
    assert len(outgoing.split_reply(content)) > 20
    for reply in (
        replace(content, in_reply_to=new_id()),
        replace(content, operation=PostOperation(PostOperationKind.REPLY, "12")),
    ):
        pieces = [part.text for part in outgoing.split_reply(reply)]
        assert pieces[:4] == outgoing.split_text(content.text)[:4]
        assert len(pieces) == 5
        assert pieces[-1].endswith("…")


@pytest.mark.long
@pytest.mark.failure("D-16")
@given(st.lists(WORDS.map(" ".join), min_size=6, max_size=8))
def test_no_part_of_a_shortened_reply_is_too_long(texts: list[str]) -> None:
    reply = Content(text="\n".join(part * 3 for part in texts), in_reply_to=new_id())
    assert all(outgoing.text_weight(part.text) <= outgoing.MAX_WEIGHT for part in outgoing.split_reply(reply))


def test_a_url_is_not_split() -> None:
    address = "https://example.com/" + "a" * 60
    assert outgoing.split_text("word " * 50 + address)[-1].endswith(address)


@pytest.mark.parametrize(("text", "texts"), [("Look.", ["Look.", "2/3", "3/3"]), (SENTENCE * 6, None)])
def test_more_than_four_pictures_go_with_the_posts_that_follow(text: str, texts: list[str] | None) -> None:
    pictures = tuple(Attachment(str(n), MediaKind.IMAGE, data=b"png") for n in range(9))
    posts = outgoing.split_reply(Content(text=text, attachments=pictures))
    assert [len(part.attachments) for part in posts if part.attachments] == [4, 4, 1]
    assert texts is None or [part.text for part in posts] == texts
    assert tuple(file for part in posts for file in part.attachments) == pictures


def test_pictures_beyond_the_posts_of_a_reply_are_named() -> None:
    pictures = tuple(Attachment(str(n), MediaKind.IMAGE, name=f"{n}.png", data=b"png") for n in range(22))
    posts = outgoing.split_reply(Content(text="Look.", attachments=pictures, in_reply_to=new_id()))
    assert [len(part.attachments) for part in posts] == [4] * outgoing.MAX_REPLY_POSTS
    assert posts[0].text == "Look.\n(could not be posted: 20.png, 21.png)"


def test_files_that_x_does_not_take_are_named() -> None:
    song = Attachment("3", MediaKind.AUDIO, name="song.ogg", data=b"song")
    [post] = outgoing.split_reply(Content(text="Listen.", attachments=(song,)))
    assert post.text == "Listen.\n(could not be posted: song.ogg)"


def test_pictures_go_with_the_first_post_and_other_files_as_urls() -> None:
    picture = Attachment("1", MediaKind.IMAGE, content_type="image/png", data=b"png")
    film = Attachment("2", MediaKind.VIDEO, url="https://example.com/film.mp4")
    first, *others = outgoing.split_reply(Content(text=SENTENCE * 6, attachments=(picture, film)))
    assert first.attachments == (picture,)
    assert not any(part.attachments for part in others)
    assert others[-1].text.endswith(film.url)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@bob, indeed", "indeed"),
        ("ask @carol and @dave", "ask carol and dave"),
        ("mail me at a@example.com", "mail me at a@example.com"),
        ("@bob", "bob"),
        ("so .@carol, /@dave and ＠erin", "so .carol, /dave and erin"),
        ("日@carolさんはとてもとてもいいひとですね", "日carolさんはとてもとてもいいひとですね"),
        ("RT@carol", "RTcarol"),
        ("see https://blog.example/@carol", "see https://blog.example/%40carol"),
        ("https://no.such！@carol", "https://no.such！%40carol"),
    ],
)
def test_a_reply_mentions_no_person(text: str, expected: str) -> None:
    assert outgoing.remove_mentions(text) == expected


def test_an_operation_without_text_is_a_single_part() -> None:
    like = PostOperation(PostOperationKind.LIKE, "12")
    content = Content(text="Liked " + "x" * 500, operation=like, metadata={"other": "no"})
    [part] = outgoing.split_reply(content)
    assert (part.operation, part.metadata) == (like, {})


@pytest.mark.parametrize("offset", range(30))
def test_a_cut_that_makes_a_word_a_url_does_not_make_a_post_too_long(offset: int) -> None:
    pieces = outgoing.split_text("長" * (140 - offset) + ".comm.comm.comm.comm.comm.com" * 9)
    assert max(map(outgoing.text_weight, pieces)) <= outgoing.MAX_WEIGHT


# X's published text weight.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("hello", 5),
        ("e\u0301", 1),
        ("日本語", 6),
        ("“quoted” – and — more", 21),
        ("…", 2),
        ("☕", 2),
        ("☕️", 2),
        ("👨‍👩‍👧‍👦", 2),
        ("🧑🏽‍🚀", 2),
        ("🇩🇪", 2),
        ("1️⃣", 2),
        ("https://example.com", 23),
        ("https://example.com/" + "a" * 400, 23),
        ("see https://t.co/abc, then", 4 + 23 + 6),
        ("example.com", 23),
        ("a@example.com", 13),
        ("@someone", 8),
    ],
)
def test_text_weight_follows_the_published_rules(text: str, expected: int) -> None:
    assert outgoing.text_weight(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it ended.Then it began", 22),
        ("node.js", 7),
        ("foo.museum", 23),
        ("example.com.", 24),
        ("www.example.co.uk/a_(b)", 23),
        ("http://example.com/(a)b", 23),
        ("http://example.com/x.(y)", 27),
        ("http://example.com/x!", 24),
        ("https://example.com?x=1", 23),
        ("https://example.com:80/", 23),
        ("http://localhost:8080/x", 23),
        ("http://1.2.3.4/", 15),
        ("http://a_b.com", 14),
        ("http://sub_domain.example.com", 23),
        ("user@example.com", 16),
        ("$foo.com", 8),
        ("#foo.com", 8),
        ("-foo.com", 8),
        ("_foo.com", 8),
        ("foo.com中国語", 29),
        ("http://例え.jp/", 23),
        ("\u043f\u0440\u0435\u0437\u0438\u0434\u0435\u043d\u0442.\u0440\u0444", 12),
        ("http://\u043f\u0440\u0435\u0437\u0438\u0434\u0435\u043d\u0442.\u0440\u0444", 23),
        ("https://t.co/abc/def", 27),
        ("©", 1),
        ("©️", 2),
        ("™", 2),
        ("❤", 2),
        ("❤️", 2),
        ("\u2764\ufe0e", 4),
        ("🇩", 2),
        ("🇦🇦", 4),
        ("🇩🇪🇫🇷", 4),
        ("#️⃣", 2),
        ("1⃣", 2),
        ("🏴󠁧󠁢󠁥󠁮󠁧󠁿", 2),
        ("🏳️‍🌈", 2),
        ("👍🏽", 2),
        ("🍕🏽", 4),
        ("😀️", 4),
        ("😀‍😀", 5),
        ("👩‍❤️‍💋‍👨", 2),
        ("⛹🏻‍♀️", 2),
        ("\u200b", 1),
        ("\u200e", 2),
        ("‼", 2),
        ("€", 2),
        ("ﷺ", 2),
        ("\u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8", 7),
        ("\u13e3", 2),
        ("𝕏", 2),
        ("नमस्ते", 6),
        ("\u1100", 2),
        ("https://t.co/" + "a" * 41, 54),
        ("https://" + "a" * 64 + ".com", 76),
        ("https://example.com/" + "a" * 4096, 4116),
    ],
)
def test_text_weight_is_that_of_twitter_text(text: str, expected: int) -> None:
    assert outgoing.text_weight(text) == expected


@given(st.text(max_size=200))
def test_the_pieces_join_to_the_whole_text(text: str) -> None:
    pieces = "".join(piece for piece, _ in outgoing.weighted_pieces(text))
    assert outgoing.text_weight(pieces) == outgoing.text_weight(text)
