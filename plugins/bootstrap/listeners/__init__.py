"""What is kept of the events that nothing else has kept yet, one file a family.

Deletions, cleared rooms, reactions, moves and departures of the agent itself are none of them: the books
have those before anybody is told.
"""
