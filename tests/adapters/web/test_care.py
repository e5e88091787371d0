"""Care over the web: a referral is a reply of its own, and its counts are served without texts and people."""

from datetime import timedelta
from typing import Any

import pytest

from bot import system_clock
from tests.adapters.web.conftest import TOKEN

DISTRESS = "I want to die"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


async def test_a_referral_is_the_first_reply_and_has_its_kind(web_server: Any) -> None:
    outcome = await web_server.send(DISTRESS)
    referral, answer = outcome["replies"]
    assert (referral["kind"], answer["kind"]) == ("referral", "reply")
    assert "https://findahelpline.com" in referral["text"]
    assert referral["in_reply_to"] == outcome["message_id"]
    assert [reply["kind"] for reply in (await web_server.send(DISTRESS))["replies"]] == ["reply"]


async def test_a_message_that_is_not_answered_has_its_referral_all_the_same(web_server: Any) -> None:
    outcome = await web_server.send(f"silence please. {DISTRESS}", user="Eve")
    assert (outcome["outcome"], [reply["kind"] for reply in outcome["replies"]]) == ("ignored", ["referral"])


async def test_the_page_shows_a_referral_again_when_it_is_opened_later(web_server: Any) -> None:
    await web_server.send(DISTRESS, room="den")
    [room] = [item for item in (await web_server.get("/api/rooms"))["rooms"] if item["name"] == "den"]
    messages = (await web_server.get(f"/api/rooms/{room['id']}/messages"))["messages"]
    assert [item["kind"] for item in messages] == ["reply", "referral", "reply"]


async def test_the_report_counts_referrals_by_day_and_category(web_server: Any) -> None:
    await web_server.send(DISTRESS, user="Eve")
    await web_server.send(DISTRESS, user="Kim")
    await web_server.send("I cut myself again", user="Ann")
    today = system_clock().date()
    report = await web_server.get("/api/care")
    assert (report["total"], report["categories"]) == (
        3,
        {"emergency": 0, "suicide": 2, "self_harm": 1, "eating_disorder": 0},
    )
    assert {(item["day"], item["category"], item["count"]) for item in report["days"]} == {
        (str(today), "suicide", 2),
        (str(today), "self_harm", 1),
    }
    assert (report["since"], report["until"]) == (str(today - timedelta(days=30)), str(today))
    tomorrow = await web_server.get(f"/api/care?since={today + timedelta(days=1)}&agent=ada")
    assert (tomorrow["total"], tomorrow["days"]) == (0, [])
    assert "Eve" not in str(report)
    await web_server.get("/api/care?since=yesterday", 422)


async def test_a_stream_of_events_brings_the_referral_before_the_answer(web_server: Any) -> None:
    body = {"text": DISTRESS, "stream": True}
    answer = await web_server.request("POST", "/api/agents/ada/messages", json=body, headers=HEADERS)
    text = await answer.text()
    assert text.index("findahelpline") < text.index("You said")


@pytest.mark.parametrize("is_on", [True, False])
async def test_the_referrals_of_today_are_a_metric(web_server: Any, is_on: bool) -> None:
    if is_on:
        await web_server.send(DISTRESS)
    text = await (await web_server.request("GET", "/metrics", headers=HEADERS)).text()
    assert ('greenroom_referrals_today{agent="Ada",category="suicide"} 1.0' in text) is is_on
    assert DISTRESS not in text
