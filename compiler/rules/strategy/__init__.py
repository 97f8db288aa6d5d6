"""Rules about sharding, memory and the launch."""
