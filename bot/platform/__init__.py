"""One door in, one door out, both durable; and what stands on the other side of them."""
