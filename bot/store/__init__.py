"""Where everything is kept: small contracts, and the store that keeps it in memory."""
