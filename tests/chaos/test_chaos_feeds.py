"""Kills while the entries of feeds are posted: each comes once, and none is missed."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from bot import Settings, Task, TaskSchedule, TaskTag, derived_id
from bot.settings import Layer
from bot.store import SqlStorage
from plugins.feeds.feed import READ_FEED
from tests.chaos.adapter import MARK
from tests.chaos.conftest import OpenScene
from tests.chaos.killing import KILLS, SAMPLE, kill_at_random, run_until_done
from tests.chaos.scene import Scene

pytestmark = pytest.mark.long
ENTRIES = 3
AGENT = derived_id("agent", "Ada")
UNREAD = "SELECT count(*) FROM tasks WHERE name = 'READ_FEED' AND next_run <= strftime('%s', 'now') * 1000000"
ITEMS = "".join(f"<item><guid>{number}</guid><title>Entry {number}</title></item>" for number in range(ENTRIES))
POINTS = ("outbox.committed:2", "send.pre_write:1", "send.post_write:2", "send.pre_record:2")


async def send_feed(request: web.BaseRequest) -> web.Response:
    """Serve the feed, as the proxy through which the bot fetches what strangers name."""
    return web.Response(text=f'<rss version="2.0"><channel><title>News</title>{ITEMS}</channel></rss>')


async def store_due_feeds(scene: Scene, count: int, *, has_voice: bool = False) -> None:
    """Let a person write in each room, and have each follow the feed, of which nothing was read yet."""
    for number in range(count):
        scene.platform.feed(f"room {number}", "quiet")
    await scene.run_until_settled(60.0)
    settings = Settings([Layer("the test", {"DATABASE_URL": f"sqlite:///{scene.program.database}"})])
    schedule = TaskSchedule(timedelta(days=1)).to_metadata()
    async with SqlStorage().open(AGENT, settings) as store:
        for room in await store.worlds.rooms():
            metadata = {"voice": has_voice, "title": "News", "etag": "", "modified": "", "seen": [], **schedule}
            due = datetime.now(UTC) - timedelta(seconds=1)
            tags, url = frozenset({TaskTag.QUEUE, TaskTag.REPEAT}), "http://news.test/rss"
            await store.tasks.save_task(
                Task(room.id, READ_FEED, due, url, room.id, room.world_id, tags=tags, metadata=metadata)
            )


def count_posts(scene: Scene) -> Counter[tuple[str, str]]:
    """Count what can be read in each room; one with the mark of a repetition may be the only one."""
    texts = [(post.room, post.text) for post in scene.platform.record.posted if "Entry" in post.text]
    plain = Counter(item for item in texts if not item[1].startswith(MARK))
    keys = {(room, text.removeprefix(MARK).strip()) for room, text in texts}
    return Counter({key: plain[key] or 1 for key in keys})


def is_read(scene: Scene) -> bool:
    """Return whether all feeds are read."""
    return not scene.database.count(UNREAD)


def expected(rooms: int) -> Counter[tuple[str, str]]:
    return Counter({(f"room {room}", f"Entry {entry}"): 1 for room in range(rooms) for entry in range(ENTRIES)})


@pytest.mark.parametrize("kills", [SAMPLE, KILLS])
async def test_after_random_kills_each_entry_is_posted_once_in_each_room(open_scene: OpenScene, kills: int) -> None:
    async with (
        RawTestServer(send_feed) as server,
        open_scene(FEEDS="10", HTTP_PROXY=str(server.make_url("/"))) as scene,
    ):
        await store_due_feeds(scene, kills)
        await kill_at_random(scene, kills, lambda: is_read(scene), seed=51)
        await run_until_done(scene, lambda: is_read(scene))
        assert count_posts(scene) == expected(kills)
        assert scene.verdict.complaints == []


@pytest.mark.parametrize("point", POINTS)
async def test_after_a_kill_at_any_stage_each_entry_is_posted_once(open_scene: OpenScene, point: str) -> None:
    async with (
        RawTestServer(send_feed) as server,
        open_scene(FEEDS="10", HTTP_PROXY=str(server.make_url("/"))) as scene,
    ):
        await store_due_feeds(scene, 1)
        await scene.program.run_until_killed(point)
        await run_until_done(scene, lambda: is_read(scene))
        assert count_posts(scene) == expected(1)
        assert scene.verdict.complaints == []


async def test_after_a_kill_an_entry_that_was_posted_is_not_commented_again(open_scene: OpenScene) -> None:
    async with (
        RawTestServer(send_feed) as server,
        open_scene(FEEDS="10", HTTP_PROXY=str(server.make_url("/"))) as scene,
    ):
        await store_due_feeds(scene, 1, has_voice=True)
        await scene.program.run_until_killed("outbox.committed:2")
        await run_until_done(scene, lambda: is_read(scene))
        posted = [text for text in scene.texts if "Entry" in text]
        assert posted == [f"Hear, hear.\nEntry {entry}" for entry in reversed(range(ENTRIES))]
        assert scene.model.asked["comment", "none"] == ENTRIES + 1  # the kill came before the second was noted
