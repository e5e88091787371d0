"""Files of both elizaOS generations: the value of each field, and the report."""

import json
from typing import Any

import pytest

from bot.characters import Format, parse_character
from bot.domain.character import Character, ExampleContent, KnowledgeItem, MessageExample, Style

V0 = """{
  "id": "7d1f7c9e-6f9d-4f55-8a5e-0d6a3f1f2b11",
  "name": "Bosun Bell",
  "clients": ["twitter", "DISCORD", "@elizaos/client-telegram", "direct", "twitter"],
  "modelProvider": "OpenAI",
  "imageModelProvider": "openai",
  "settings": {
    "secrets": {"OPENAI_API_KEY": "sk-test-not-a-real-one"},
    "voice": {"model": "en_GB-alan-medium"},
    "modelConfig": {"temperature": 0.6}
  },
  "plugins": ["@elizaos-plugins/plugin-tides"],
  "bio": "Rings the watch.",
  "lore": ["Was cast twice.", "Cracked once."],
  "knowledge": ["Eight bells end a watch.", {"path": "bells.md", "shared": true}],
  "messageExamples": [
    [
      {"user": "{{user1}}", "content": {"text": "What time is it?"}},
      {"user": "Bosun Bell", "content": {"text": "Four bells.", "action": "CONTINUE"}}
    ],
    []
  ],
  "postExamples": ["Ding."],
  "topics": ["time"],
  "adjectives": ["resonant"],
  "people": ["the mate"],
  "style": {"all": ["short"], "chat": [], "post": "shorter"},
  "clientConfig": {
    "discord": {"allowedChannelIds": ["1", 2], "shouldIgnoreBotMessages": true, "isPartOfTeam": false},
    "telegram": {"allowedGroupIds": []}
  },
  "twitterProfile": {"username": "bosunbell"},
  "twitterSpaces": {"maxSpeakers": 2},
  "nft": {"prompt": ""},
  "extends": [],
  "hull": {"planks": [1, 2.5, null]}
}"""

V1 = """{
  "name": "Purser Pell",
  "username": "purserpell",
  "system": "You keep the accounts.",
  "templates": {"messageHandlerTemplate": "You are {{agentName}}. {{providers}}"},
  "bio": ["Counts.", "Recounts."],
  "messageExamples": [
    [
      {"name": "{{name1}}", "content": {"text": "Is it paid?", "source": "web"}},
      {"name": "Purser Pell", "content": {"text": "Twice.", "actions": ["REPLY", "SEND_RECEIPT"]}}
    ]
  ],
  "postExamples": ["A ledger is a diary that adds up."],
  "topics": ["ledgers"],
  "adjectives": ["exact"],
  "knowledge": ["A guinea is 21 shillings.", {"directory": "accounts", "shared": false}],
  "plugins": ["@elizaos/plugin-bootstrap", "@elizaos/plugin-sql", "./till"],
  "settings": {"OPENAI_LARGE_MODEL": "gpt-x", "secrets": {}},
  "secrets": {"TILL_KEY": "brass-and-heavy"},
  "style": {"all": ["exact"], "chat": ["brief"], "post": ["dry"]}
}"""


def test_a_v0_file_is_loaded() -> None:
    loaded = parse_character(V0)
    character = loaded.character

    assert str(character.id) == "7d1f7c9e-6f9d-4f55-8a5e-0d6a3f1f2b11"
    assert character.adapters == ("x", "discord", "telegram", "web")
    assert character.model_provider == "openai"
    assert character.plugins == ("@elizaos-plugins/plugin-tides",)
    assert character.background == ("Rings the watch.", "Was cast twice.", "Cracked once.")
    assert character.knowledge == (
        KnowledgeItem(content="Eight bells end a watch."),
        KnowledgeItem(path="bells.md", shared=True),
    )
    assert character.message_examples == (
        (
            MessageExample(name="{{user1}}", content=ExampleContent(text="What time is it?")),
            MessageExample(name="Bosun Bell", content=ExampleContent(text="Four bells.", actions=("CONTINUE",))),
        ),
    )
    assert character.style == Style(all=("short",), post=("shorter",))
    assert character.settings["CHANNEL_IDS"] == "1,2"
    assert character.settings["DISCORD_SHOULD_IGNORE_BOT_MESSAGES"] is True
    assert "TELEGRAM_ALLOWED_CHATS" not in character.settings
    assert character.twitter_profile == {"username": "bosunbell"}
    assert (character.model_extra or {})["hull"] == {"planks": [1, 2.5, None]}
    assert dict(loaded.secrets) == {"OPENAI_API_KEY": "sk-test-not-a-real-one"}


def test_suggestions_and_a_picture_are_kept_by_every_spelling() -> None:
    text = '{"name": "Bell", "suggestions": "What time is it?", "settings": {"avatar": "https://example.org/bell.png"}}'
    character = parse_character(text).character
    assert (character.suggestions, character.picture_source) == (("What time is it?",), "https://example.org/bell.png")
    named = parse_character('{"name": "Bell", "picture": "bell.png", "suggestions": ["Ahoy", "Hello"]}')
    assert (named.character.suggestions, named.character.picture_source) == (("Ahoy", "Hello"), "bell.png")
    assert (named.report.kept, named.report.ignored) == ((), ())
    other = parse_character('{"name": "Bell", "picture": {"url": "x"}, "suggestions": {"a": 1}}')
    assert [note.path for note in other.report.ignored] == ["picture", "suggestions"]


def test_a_v0_file_is_reported_by_line() -> None:
    report = parse_character(V0).report

    assert report.format is Format.V0
    assert [(note.line, note.path) for note in report.mapped] == [
        (4, "clients"),
        (13, "bio"),
        (14, "lore"),
        (18, "messageExamples.user"),
        (19, "messageExamples.action"),
        (27, "style.post"),
        (29, "clientConfig.discord.allowedChannelIds"),
        (29, "clientConfig.discord.shouldIgnoreBotMessages"),
    ]
    assert [(note.line, note.path) for note in report.ignored] == [
        (5, "modelProvider"),
        (6, "imageModelProvider"),
        (9, "settings.voice"),
        (10, "settings.modelConfig"),
        (26, "people"),
        (29, "clientConfig.discord.isPartOfTeam"),
        (32, "twitterProfile"),
        (33, "twitterSpaces"),
        (34, "nft"),
    ]
    assert all(len(note.message) > 10 for note in report.ignored)
    assert [(note.line, note.path) for note in report.kept] == [(36, "hull")]
    assert [(note.line, note.path) for note in report.secrets] == [(8, "settings.secrets.OPENAI_API_KEY")]
    assert report.warnings == ()


def test_a_v1_file_is_loaded_unchanged() -> None:
    loaded = parse_character(V1)

    expected = json.loads(V1)
    del expected["secrets"], expected["settings"]["secrets"]
    assert loaded.character == Character.model_validate(expected)
    assert loaded.report.format is Format.V1
    assert [name for name, notes in loaded.report.sections().items() if notes] == ["secrets"]
    assert dict(loaded.secrets) == {"TILL_KEY": "brass-and-heavy"}


@pytest.mark.parametrize("text", [V0, V1])
def test_a_character_survives_writing_and_reading(text: str) -> None:
    once = parse_character(text).character

    again = parse_character(once.model_dump_json(by_alias=True, exclude_defaults=True))

    assert again.character == once
    assert again.report.warnings == ()


@pytest.mark.parametrize(
    ("parts", "format"),
    [
        ({}, Format.V1),
        ({"bio": "text"}, Format.V1),
        ({"adapters": ["x"]}, Format.V1),
        ({"clients": []}, Format.V0),
        ({"modelProvider": "groq"}, Format.V0),
        ({"lore": []}, Format.V0),
        ({"messageExamples": [[{"user": "a", "content": {}}]]}, Format.V0),
        ({"messageExamples": [[{"name": "a", "content": {"action": "X"}}]]}, Format.V0),
    ],
)
def test_the_generation_is_detected_by_its_keys(parts: dict[str, Any], format: Format) -> None:
    assert parse_character(json.dumps({"name": "Ada", **parts})).report.format is format


@pytest.mark.parametrize(
    ("client", "adapter"),
    [
        ("twitter", "x"),
        ("Twitter", "x"),
        ("discord", "discord"),
        ("direct", "web"),
        ("@elizaos/client-twitter", "x"),
        ("@elizaos-plugins/client-discord", "discord"),
        ("@elizaos/plugin-telegram", "telegram"),
        ("slack", "slack"),
    ],
)
def test_clients_are_mapped_to_adapters(client: str, adapter: str) -> None:
    assert parse_character(json.dumps({"name": "Ada", "clients": [client]})).character.adapters == (adapter,)


def test_an_empty_clients_list_enables_every_platform_with_a_token() -> None:
    loaded = parse_character('{"name": "Ada", "clients": []}')

    assert loaded.character.adapters == ()
    assert "every platform with a token" in loaded.report.mapped[0].message


def test_plugin_names_are_not_changed() -> None:
    names = ["@elizaos/plugin-discord", "./mine", "knowledge"]

    assert parse_character(json.dumps({"name": "Ada", "plugins": names})).character.plugins == tuple(names)


def test_name_placeholders_in_examples_are_not_changed() -> None:
    line = {"user": "{{user2}}", "content": {"text": "Ask {{name1}} or {{user1}}."}}

    (conversation,) = parse_character(
        json.dumps({"name": "Ada", "messageExamples": [[line]]})
    ).character.message_examples

    assert (conversation[0].name, conversation[0].content.text) == ("{{user2}}", "Ask {{name1}} or {{user1}}.")


def test_name_takes_precedence_over_user_in_an_example() -> None:
    line = {"user": "old", "name": "new", "content": {"action": "A", "actions": ["B", "A"]}}

    loaded = parse_character(json.dumps({"name": "Ada", "messageExamples": [[line]]}))

    assert loaded.character.message_examples[0][0].name == "new"
    assert loaded.character.message_examples[0][0].content.actions == ("B", "A")


def test_unknown_keys_of_an_example_are_preserved() -> None:
    line = {"name": "a", "mood": {"x": 1}, "content": {"text": "Hi", "attachments": [{"url": "u"}]}}

    (example,) = parse_character(json.dumps({"name": "Ada", "messageExamples": [[line]]})).character.message_examples[0]

    assert example.model_extra == {"mood": {"x": 1}}
    assert example.content.model_extra == {"attachments": [{"url": "u"}]}


def test_examples_may_be_wrapped_in_an_object() -> None:
    line = {"name": "a", "content": {"text": "Hi"}}

    loaded = parse_character(json.dumps({"name": "Ada", "messageExamples": [{"examples": [line]}]}))

    assert loaded.character.message_examples[0][0].content.text == "Hi"


def test_settings_take_precedence_over_client_config() -> None:
    parts = {"settings": {"CHANNEL_IDS": "9"}, "clientConfig": {"discord": {"allowedChannelIds": ["1"]}}}

    loaded = parse_character(json.dumps({"name": "Ada", **parts}))

    assert loaded.character.settings["CHANNEL_IDS"] == "9"
    assert [note.path for note in loaded.report.ignored] == ["clientConfig.discord.allowedChannelIds"]


def test_an_allow_list_in_platform_settings_becomes_a_setting() -> None:
    loaded = parse_character('{"name": "Ada", "settings": {"discord": {"allowedChannelIds": ["1"]}}}')

    assert loaded.character.settings["CHANNEL_IDS"] == "1"
    assert loaded.character.settings["discord"] == {"allowedChannelIds": ["1"]}


@pytest.mark.parametrize(
    ("item", "read"),
    [
        ({"case": "path", "value": "bells.md"}, KnowledgeItem(path="bells.md")),
        (
            {"case": "directory", "value": {"directory": "docs", "shared": True}},
            KnowledgeItem(directory="docs", shared=True),
        ),
    ],
)
def test_the_newest_form_of_knowledge_of_elizaos_is_read(item: Any, read: KnowledgeItem) -> None:
    loaded = parse_character(json.dumps({"name": "Bell", "knowledge": [{"item": item}]}))
    assert loaded.character.knowledge == (read,)
    assert loaded.report.warnings == ()


def test_a_placeholder_of_a_greeting_that_is_left_out_is_a_warning() -> None:
    [note] = parse_character('{"name": "Bell", "greetings": ["Ahoy {{user}}, {{char}} {{time}}!"]}').report.warnings
    assert (note.path, note.message) == ("greetings[0]", "{{time}} means nothing here and is left out")
