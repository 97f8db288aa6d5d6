"""Import keys of TRL, transformers and PEFT. The importers of other tools also use these modules."""
