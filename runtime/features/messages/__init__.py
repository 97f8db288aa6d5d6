"""Messages of rows: tool calls in one form, and what turns say of themselves."""
