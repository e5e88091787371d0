"""Kills while pages are read for answers: no answer is lost, each says what was read, and pages are read once."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from tests.chaos.conftest import OpenScene
from tests.chaos.killing import KILLS, SAMPLE, kill_at_random
from tests.chaos.scene import Scene

pytestmark = pytest.mark.long
POINTS = ("model.reply:1", "model.post:1", "turn.pre_commit:1", "outbox.committed:1", "send.pre_write:1")


@asynccontextmanager
async def reading(open_scene: OpenScene) -> AsyncIterator[tuple[Scene, Counter[str]]]:
    """Build a scene whose bot reads links, on sites of one page each; count the requests of their pages."""
    asked: Counter[str] = Counter()

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.path == "/robots.txt":
            return web.Response(status=404)
        asked[request.host] += 1
        scene.wire.note("page")
        return web.Response(text=f"The bees of {request.host} are well.")

    async with RawTestServer(answer) as server, open_scene(LINKS="20", HTTP_PROXY=str(server.make_url("/"))) as scene:
        yield scene, asked


def post_link(scene: Scene, number: int) -> None:
    """Let a person post the link of a site in a room of its own."""
    scene.platform.feed(f"room {number}", f"hello, see http://site{number}.test/page")


def expected(rooms: int) -> Counter[str]:
    """Return the answers to the links in so many rooms."""
    sites = ((f"m{number + 1}", f"site{number}.test") for number in range(rooms))
    return Counter(f"re {name}+the page of {site}\n\n(read: {site})" for name, site in sites)


@pytest.mark.parametrize("kills", [SAMPLE, KILLS])
async def test_after_random_kills_each_link_is_answered_with_what_its_page_says(
    open_scene: OpenScene, kills: int
) -> None:
    async with reading(open_scene) as (scene, asked):
        for number in range(kills):
            post_link(scene, number)
            await kill_at_random(scene, 1, scene.is_settled, seed=number)
        verdict = await scene.run_until_settled(60.0)
        assert Counter(scene.texts) == expected(kills)
        assert set(asked) == {f"site{number}.test" for number in range(kills)}
        assert verdict.complaints == []


@pytest.mark.parametrize("point", POINTS)
async def test_after_a_kill_behind_the_reading_the_page_is_not_read_again(open_scene: OpenScene, point: str) -> None:
    async with reading(open_scene) as (scene, asked):
        post_link(scene, 0)
        await scene.program.run_until_killed(point)
        verdict = await scene.run_until_settled()
        assert Counter(scene.texts) == expected(1)
        assert asked == {"site0.test": 1}
        assert verdict.complaints == []
