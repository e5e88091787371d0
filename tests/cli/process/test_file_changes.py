"""Files are noticed when they change, also where their folder cannot be watched."""

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from pathlib import Path

import pytest

from bot.cli.process.shutdown import wake_on_changes, watch_files


async def test_a_folder_that_cannot_be_watched_is_looked_at_every_few_seconds(tmp_path: Path) -> None:
    async with asyncio.timeout(20), aclosing(wake_on_changes([tmp_path / "missing"], 0.01)) as wakes:
        assert not await anext(wakes)
        assert not await anext(wakes)


@pytest.mark.parametrize("folder", ["", "missing"], ids=["watched", "looked at"])
async def test_the_file_that_has_changed_is_yielded(tmp_path: Path, folder: str) -> None:
    files = [tmp_path / "ada.json", tmp_path / "bea.json"]
    for file in files:
        file.write_text("{}", encoding="utf-8")
    started = asyncio.Event()

    async def wake(folders: Collection[Path]) -> AsyncGenerator[Collection[Path], None]:
        started.set()
        async with aclosing(wake_on_changes([tmp_path / folder], 0.05)) as wakes:
            async for paths in wakes:
                yield paths

    async with asyncio.timeout(20), aclosing(watch_files(files, wake)) as changed:
        waiting = asyncio.create_task(anext(changed))
        await started.wait()
        number = 0
        while not waiting.done():  # until the watcher has started
            number += 1
            files[1].write_text(f'{{"name": "Bea {number}"}}' + " " * number, encoding="utf-8")
            await asyncio.wait([waiting], timeout=0.2)
        assert waiting.result() == files[1]
