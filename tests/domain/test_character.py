"""The character and its fields."""

import json
from uuid import UUID

import pytest
from pydantic import SecretStr, ValidationError

from bot.domain.character import Character, ExampleContent, KnowledgeItem, MessageExample, Style


def test_a_name_is_all_that_a_character_needs() -> None:
    character = Character(name="Ada")

    assert (character.bio, character.plugins, character.adapters) == ((), (), ())
    assert character.style == Style()
    assert character.id is None


@pytest.mark.parametrize("name", ["", "   ", "\n"])
def test_a_character_without_a_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        Character(name=name)


def test_a_character_is_immutable() -> None:
    with pytest.raises(ValidationError):
        Character(name="Ada").name = "Eve"  # type: ignore[misc]


def test_fields_are_known_by_both_spellings() -> None:
    camel = Character.model_validate({"name": "Ada", "postExamples": ["Hm."], "modelProvider": "openai"})
    snake = Character(name="Ada", post_examples=("Hm.",), model_provider="openai")

    assert camel == snake


def test_a_single_text_is_a_list_of_length_1_and_null_is_empty() -> None:
    character = Character.model_validate({"name": "Ada", "bio": "Counts.", "topics": None, "style": {"all": "dry"}})

    assert character.bio == ("Counts.",)
    assert character.topics == ()
    assert character.style.all == ("dry",)


def test_knowledge_is_a_text_a_file_or_a_folder() -> None:
    items = ["Two and two.", {"path": "a.md", "shared": True}, {"directory": "notes"}]
    character = Character.model_validate({"name": "Ada", "knowledge": items})

    assert character.knowledge == (
        KnowledgeItem(content="Two and two."),
        KnowledgeItem(path="a.md", shared=True),
        KnowledgeItem(directory="notes"),
    )


def test_the_background_is_the_bio_and_then_the_lore() -> None:
    assert Character(name="Ada", bio=("b",), lore=("l",)).background == ("b", "l")


def test_unknown_keys_are_preserved_at_every_level() -> None:
    data = {
        "name": "Ada",
        "favouriteColour": {"warm": ["red"]},
        "style": {"all": ["dry"], "letters": ["long"]},
        "messageExamples": [[{"name": "Ada", "mood": 3, "content": {"text": "Hm.", "url": "x"}}]],
        "knowledge": [{"path": "a.md", "language": "en"}],
    }

    character = Character.model_validate(data)

    assert json.loads(character.model_dump_json(by_alias=True, exclude_unset=True)) == data


def test_a_character_survives_being_written_and_read() -> None:
    character = Character(
        id=UUID("7d1f7c9e-6f9d-4f55-8a5e-0d6a3f1f2b11"),
        name="Ada",
        message_examples=((MessageExample(name="{{user1}}", content=ExampleContent(text="Hi", actions=("WAVE",))),),),
        settings={"DEPTH": [1, {"two": None}]},
    )

    assert Character.model_validate_json(character.model_dump_json(by_alias=True)) == character


def test_secrets_are_neither_printed_nor_serialized() -> None:
    character = Character(name="Ada", secrets={"OPENAI_API_KEY": SecretStr("CANARY")})

    shown = f"{character!r} {character} {character.model_dump()} {character.model_dump_json()}"

    assert "CANARY" not in shown
    assert character.secrets["OPENAI_API_KEY"].get_secret_value() == "CANARY"


def test_a_validation_error_does_not_quote_its_input() -> None:
    with pytest.raises(ValidationError) as caught:
        Character.model_validate({"name": "Ada", "bio": {"key": "CANARY"}})

    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Hello {{user}}, {{ User }} and {{name1}}.", "Hello {{char}}, {{char}} and {{char}}."),
        ("I am {{char}}, {{agentName}}.", "I am Ada, Ada."),
        ("Now{{random:a,b}}, {{#if x}}you{{/if}}.", "Now, you."),
        ("{{nothing}}", ""),
    ],
)
def test_a_greeting_has_names_in_place_of_placeholders_and_no_other_placeholder(text: str, said: str) -> None:
    assert Character(name="Ada", greetings=(text,)).greet("{{char}}") == said
