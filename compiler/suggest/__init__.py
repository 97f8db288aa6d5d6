"""Suggest what the user probably intended by a wrong name or value in a spec. Imported only after an error."""
