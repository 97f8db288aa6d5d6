"""Rules about adapters and partly trained models."""
