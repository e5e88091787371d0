"""Rules of single rooms and worlds, as the character's file says them."""

import pytest

from bot.adapter.adapter import AnswerPolicy, RoomRule, parse_room_rules
from bot.domain.character import Character
from bot.domain.content import MentionContext
from bot.errors import SettingError
from bot.testing import running_agent

ROOMS = {
    "7": {"answers": "listen"},
    "8": {"answers": "mentions"},
    "9": {"answers": "ignore"},
    "guild": {"answers": "mentions"},
}
MENTION, REPLY, CHATTER = MentionContext(is_mention=True), MentionContext(is_reply=True), MentionContext()


def character(rooms: object, platform: str = "discord") -> Character:
    return Character.model_validate({"name": "Ada", "settings": {platform: {"rooms": rooms}}})


def test_the_narrowest_place_that_has_a_rule_decides() -> None:
    rules = parse_room_rules(character({**ROOMS, "*": {"answers": "listen"}}, "Discord"))
    assert rules.find("discord", "7", "guild").policy is AnswerPolicy.LISTEN
    assert rules.find("discord", "thread", "8", "guild").policy is AnswerPolicy.MENTIONS
    assert rules.find("discord", "nowhere").policy is AnswerPolicy.LISTEN
    assert rules.find("telegram", "7") == RoomRule()


@pytest.mark.parametrize(
    ("room", "mention", "denied"),
    [
        ("7", MENTION, "settings.discord.rooms.7 (listen)"),
        ("8", MENTION, ""),
        ("8", REPLY, ""),
        ("8", CHATTER, "settings.discord.rooms.8 (mentions)"),
        ("other", CHATTER, ""),
    ],
)
def test_a_rule_that_forbids_an_answer_names_its_place(room: str, mention: MentionContext, denied: str) -> None:
    assert parse_room_rules(character(ROOMS)).find("discord", room).refusal_for(mention) == denied


def test_what_is_said_to_the_agent_alone_needs_no_mention() -> None:
    rule = parse_room_rules(character(ROOMS)).find("discord", "8")
    assert rule.refusal_for(CHATTER, is_direct=True) == ""


def test_only_what_is_ignored_is_not_kept() -> None:
    rules = parse_room_rules(character(ROOMS))
    assert [rules.find("discord", room).is_ignored for room in "789"] == [False, False, True]


@pytest.mark.parametrize("rooms", [{"7": "listen"}, {"7": {"answers": "never"}}, {"7": {"answer": "usual"}}])
def test_a_rule_that_makes_no_sense_is_refused_with_its_place(rooms: object) -> None:
    with pytest.raises(SettingError, match=r"settings\.discord\.rooms\.7: .*usual, mentions, listen, ignore"):
        parse_room_rules(character(rooms))


def test_rooms_that_are_no_rooms_are_refused() -> None:
    with pytest.raises(SettingError, match=r"settings\.discord\.rooms: "):
        parse_room_rules(character(["7"]))


async def test_an_adapter_finds_the_rules_at_its_handle() -> None:
    async with running_agent(character=character(ROOMS)) as harness:
        assert harness.agent_runtime.handle.room_rules.find("discord", "7").policy is AnswerPolicy.LISTEN
