"""The services of an agent."""

import pytest

from bot.turn import Services


class Weather:
    """A service."""


class Radar(Weather):
    """A more special one."""


def test_a_service_is_found_by_its_class_and_by_the_classes_above() -> None:
    services, radar = Services(), Radar()
    services.add(radar)

    assert services[Radar] is radar
    assert services[Weather] is radar
    assert Weather in services
    assert list(services.values()) == [radar]


def test_a_service_that_no_plugin_provides_is_named() -> None:
    services = Services()
    services.add(Weather())

    assert Radar not in services
    with pytest.raises(LookupError, match="service Radar is not running: no plugin of this agent brings it"):
        services[Radar]


@pytest.mark.parametrize("wanted", [Radar, Weather])
def test_a_service_that_did_not_start_says_why(wanted: type) -> None:
    services = Services()
    services.remove(Radar, "ValueError: no key")

    with pytest.raises(LookupError, match="is not running: ValueError: no key"):
        services[wanted]


def test_a_service_that_has_stopped_says_so_and_may_come_back() -> None:
    services, radar = Services(), Radar()
    services.add(radar)
    services.remove(Radar)
    with pytest.raises(LookupError, match="it has stopped"):
        services[Radar]

    services.add(radar)
    assert services[Radar] is radar
