"""Import keys of TRL, transformers and PEFT, which all sources share."""
