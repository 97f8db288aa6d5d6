"""Messages of rows: bring tool calls into the form that the chat template reads, and report keys that are not read."""
