"""What a bot owes people, as operators see it."""

from typing import Any

from tests.adapters.web.test_care import DISTRESS


async def test_duties_show_notices_referrals_marked_people_and_settings(web_server: Any) -> None:
    await web_server.send(DISTRESS, user="Eve")
    await web_server.send("hello", user="Kim")
    people = {person["name"]: person["id"] for person in (await web_server.get("/api/people"))["people"]}
    await web_server.post(f"/api/people/{people['Kim']}/mark-minor", None)
    await web_server.post(f"/api/people/{people['Eve']}/ignore", None)
    duties = await web_server.get("/api/duties?agent=ada")
    assert (duties["notified_people"], duties["care"]["total"]) == (0, 1)
    assert {(item["person"], item["mark"], item["origin"]) for item in duties["marks"]} == {
        (people["Kim"], "minor", "operator"),
        (people["Eve"], "not_read", "operator"),
    }
    assert list(duties["content"].values()) == ["general"]
    values = {setting["name"]: setting["value"] for setting in duties["settings"]}
    assert (values["AI_NOTICE"], values["CARE_COUNTRY"]) == ("off", None)
