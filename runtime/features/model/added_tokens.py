"""New tokens in the vocabulary, and their embeddings in the model."""

from ...core.feature import Bundle, Feature, Model, Tokenizer


class AddedTokens(Feature):
    """Hooks for a run with new tokens in the vocabulary."""

    def tokenizer_loaded(self, bundle: Bundle, tokenizer: Tokenizer) -> None:
        """Add the bundle's tokens to the tokenizer."""
        from transformers import AddedToken

        tokenizer.add_tokens([AddedToken(one, normalized=False) for one in bundle.tokenizer["added"] or ()])

    def model_loaded(self, bundle: Bundle, model: Model, tokenizer: Tokenizer) -> None:
        """Resize the embeddings to the tokenizer's size. New rows are initialized from the seed of the run.

        A reference model that is loaded later gets the same new rows. If a model has more embeddings than tokens, some
        new tokens use the spare embeddings.
        """
        import torch

        if len(tokenizer) <= model.config.get_text_config().vocab_size:
            return
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(bundle.arguments["seed"]))
            model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
