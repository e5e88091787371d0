"""Posts as messages: HTML, mentions, content warnings."""

from typing import Any

import pytest

from adapters.mastodon.incoming import Account, BotIdentity, Instance, Notification, Status, html_to_text, text_of
from bot import new_id

IDENTITY = BotIdentity(new_id(), "mastodon.example", Account(id="1", acct="ada"))
KIM = {"id": "2", "acct": "kim@other.example", "url": "https://other.example/@kim"}


def post(content: str, **values: Any) -> Status:
    fields = {"id": "9", "account": {"id": "2", "acct": "kim@other.example"}, "created_at": "2026-11-28T03:00:00Z"}
    return Status.model_validate({**fields, "content": content, "visibility": "public", "mentions": [KIM], **values})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<p>One<br />two</p><p>three &amp; four</p>", "One\ntwo\n\nthree & four"),
        (
            '<p><span class="h-card"><a href="https://other.example/@kim" class="u-url mention">@<span>kim</span></a>'
            "</span> hello</p>",
            "@kim@other.example hello",
        ),
        (
            '<a href="https://example.org/a/long/path"><span class="invisible">https://</span>'
            '<span class="ellipsis">example.org/a</span><span class="invisible">/long/path</span></a>',
            "https://example.org/a/long/path",
        ),
        ('<a href="https://mastodon.example/tags/sea" class="mention hashtag" rel="tag">#<span>sea</span></a>', "#sea"),
        ("<ul><li>one</li><li>two</li></ul>", "- one\n- two"),
        ("a :blobcat: <script>is</script> here", "a :blobcat: is here"),
        ("<p>not <b>closed", "not closed"),
    ],
)
def test_html_becomes_text_with_whole_links_and_mentions(content: str, text: str) -> None:
    assert html_to_text(content, post(content).mentions, IDENTITY) == text


@pytest.mark.parametrize("start", ["@ada ", "@Ada, ", "@ada@mastodon.example: "])
def test_the_mention_of_the_account_before_a_text_is_left_out(start: str) -> None:
    assert text_of(post(f"<p>{start}hello @adam</p>"), IDENTITY) == "hello @adam"


def test_a_content_warning_and_the_options_of_a_poll_are_part_of_the_text() -> None:
    poll = {"options": [{"title": "yes"}, {"title": "no"}]}
    status = post("<p>Well?</p>", spoiler_text="food", poll=poll)
    assert text_of(status, IDENTITY) == "[content warning: food]\nWell?\n[poll: yes / no]"


def test_of_a_server_that_states_no_limits_the_usual_ones_are_assumed() -> None:
    assert Instance.model_validate({"version": "4.4", "configuration": None}).max_characters == 500
    stated = Instance.model_validate({"configuration": {"statuses": {"max_characters": 5000}}})
    assert (stated.max_characters, stated.url_length) == (5000, 23)


def test_a_post_of_unknown_visibility_counts_as_direct() -> None:
    account = {"id": "2", "acct": "kim"}
    raw = {"id": "9", "account": account, "created_at": "2026-11-28T03:00:00Z"}
    notification = Notification.model_validate({**raw, "id": "7", "type": "mention", "status": raw})
    assert notification.status is not None
    assert notification.status.visibility == "direct"
