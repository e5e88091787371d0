"""A character runs inside another asyncio program, as examples/embedding.py shows."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
from aiohttp.test_utils import TestClient, TestServer

ROOT = Path(__file__).parents[1]


@pytest.fixture
def example() -> ModuleType:
    """Return the example as a module."""
    spec = importlib.util.spec_from_file_location("embedding", ROOT / "examples" / "embedding.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_a_web_application_runs_a_character_and_answers_with_its_replies(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    character = tmp_path / "ada.json"
    character.write_text(json.dumps({"name": "Ada", "plugins": ["offline"]}), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    async with TestClient(TestServer(example.build_app(character))) as client:
        for text in ("hello", "what is your name?"):
            response = await client.post("/chat", json={"user": "kim", "text": text})
            body = await response.json()
            assert response.status == 200
            assert body["outcome"] == "answered", body
            assert len(body["replies"]) == 1
            assert body["reason"]
