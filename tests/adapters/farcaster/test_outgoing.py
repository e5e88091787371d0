"""Replies as casts."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.farcaster.adapter import split_reply, split_text
from bot import Attachment, Content, MediaKind


@given(st.text(alphabet="abc é漢😀.!\n ", max_size=3000))
def test_pieces_fit_into_casts_and_together_are_the_text(text: str) -> None:
    pieces = split_text(text)
    assert all(len(piece.encode()) <= 1024 for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_a_text_is_split_after_a_sentence() -> None:
    sentence = "This is a sentence of a long answer. "
    assert all(piece.endswith(".") for piece in split_text((sentence * 60).strip()))


def test_two_addresses_are_embedded_in_the_first_cast_and_further_ones_follow_the_text() -> None:
    urls = [f"https://example.org/{name}.png" for name in "abc"]
    files = tuple(Attachment(url, MediaKind.IMAGE, url=url) for url in urls)
    secret = Attachment("4", MediaKind.DOCUMENT, name="notes.txt", data=b"text")
    [part] = split_reply(Content(text="Here.", attachments=(*files, secret)))
    assert [item.url for item in part.attachments] == urls[:2]
    assert part.text == f"Here.\n{urls[2]}\n(could not be posted: notes.txt)"


def test_only_the_first_cast_has_the_label_and_the_embedded_addresses() -> None:
    file = Attachment("1", MediaKind.IMAGE, url="https://example.org/a.png")
    first, second = split_reply(Content(text="word " * 300, attachments=(file,)), "[AI] ")
    assert first.text.startswith("[AI] word")
    assert "[AI]" not in second.text
    assert (len(first.attachments), second.attachments) == (1, ())
