"""Who may be mentioned in a channel: the users who wrote there lately."""

from bot.adapter.adapter import KnownPeople


def test_only_the_users_who_wrote_in_a_channel_are_known_there() -> None:
    people = KnownPeople[int]()
    people.note_user(1, "ada")
    people.note_user(2, "bo")

    assert set(people.of(1)) == {"ada"}
    assert set(people.of(3)) == set()


def test_the_accounts_own_name_is_known_everywhere() -> None:
    people = KnownPeople[int]()
    people.add_bot("self")
    people.note_user(1, "ada")

    assert set(people.of(1)) == {"self", "ada"}
    assert set(people.of(9)) == {"self"}


def test_the_users_and_channels_that_were_silent_longest_are_dropped() -> None:
    people = KnownPeople[int](max_channels=2, max_people=2)
    for user in ("ada", "bo", "ada", "cy"):
        people.note_user(1, user)
    assert set(people.of(1)) == {"ada", "cy"}

    people.note_user(2, "dee")
    people.note_user(1, "ada")
    people.note_user(3, "eve")
    assert set(people.of(2)) == set()
    assert set(people.of(1)) == {"ada", "cy"}
