"""From the platform to the pipeline: the durable inbox and the calls an adapter may make."""
