"""What is kept of the events that nothing else has kept yet, one file a family.

Deletions, reactions, moves, arrivals and departures are none of them: the books have those before anybody
is told. Of a cleared room the books have what was said and what was drawn from it as a memory.
"""
