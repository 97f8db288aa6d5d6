"""Rules about arguments that `extra` passes on to a library."""
