"""Import keys of TRL, transformers and PEFT, also for the importers of other tools."""
