"""New tokens in the vocabulary, and their rows in the model."""

from typing import Any

from ...core.feature import Bundle, Feature


class AddedTokens(Feature):
    """New tokens in the vocabulary."""

    def tokenizer_loaded(self, bundle: Bundle, tokenizer: Any) -> None:
        """Gives the tokenizer the bundle's tokens."""
        from transformers import AddedToken

        tokenizer.add_tokens([AddedToken(one, normalized=False) for one in bundle.tokenizer["added"] or ()])

    def model_loaded(self, bundle: Bundle, model: Any, tokenizer: Any) -> None:
        """Gives the model a row for each token of the tokenizer; new rows are drawn with the seed of the run.

        A reference that is loaded later gets the same rows. Models whose embeddings are longer than the vocabulary have
        rows for new tokens already.
        """
        import torch

        if len(tokenizer) <= model.config.get_text_config().vocab_size:
            return
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(bundle.arguments["seed"]))
            model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
