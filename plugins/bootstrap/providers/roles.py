"""Who has a say in this place."""

from bot import ChannelType, ProviderResult, Role, Turn, clean_name, provider, short_id

MOST_PEOPLE = 30
ALONE = (ChannelType.DM, ChannelType.VOICE_DM, ChannelType.SELF)


@provider("ROLES", "Who owns this place and who looks after it.", position=-30, dynamic=True)
async def roles(turn: Turn) -> ProviderResult:
    """List the owners and admins by the platform's word, whatever anybody says of themselves."""
    if turn.room.type in ALONE:
        return ProviderResult()
    named = turn.world.roles.keys() | turn.world.grants.keys()
    held = {one: role for one in named if (role := turn.world.role_of(one)).reaches(Role.ADMIN)}
    order = sorted(held, key=lambda one: (-held[one].rank, short_id(one)))[:MOST_PEOPLE]
    people = await turn.agent.store.entities.entities(order)
    lines = [
        f"- {clean_name(people[one].name)} (id {short_id(one)}): {held[one].lower()}"
        for one in order
        if one in people
    ]
    text = "\n".join(["# Roles", *lines, "Everybody else is a member."]) if lines else ""
    return ProviderResult(text=text, data={"roles": held})
