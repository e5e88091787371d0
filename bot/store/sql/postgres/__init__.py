"""PostgreSQL: pool, leases, work sharing, the single-round-trip ledger."""
