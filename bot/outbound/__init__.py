"""From a reply to the platform: the durable outbox and its senders."""
