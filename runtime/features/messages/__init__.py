"""Messages of rows: convert tool calls to the form that the chat template reads, and report keys that are not read."""
