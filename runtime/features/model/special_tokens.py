"""Set the end and padding tokens that the bundle states."""

from ...core.errors import RunError
from ...core.feature import Bundle, Feature, Tokenizer


class SpecialTokens(Feature):
    """Hooks for a run whose bundle names end and padding tokens."""

    def tokenizer_loaded(self, bundle: Bundle, tokenizer: Tokenizer) -> None:
        """Set the tokenizer's end and padding tokens. Raises RunError for an unknown token."""
        vocabulary, tokens = tokenizer.get_vocab(), bundle.tokenizer
        for kind, stated in (("eos_token", tokens["eos_token"]), ("pad_token", tokens["pad_token"])):
            token = stated or bundle.arguments.get(kind)
            if token is None:
                continue
            if token not in vocabulary:
                raise RunError(
                    f"the {kind.replace('_', ' ')} {token!r} is not in the vocabulary of {bundle.model_path}"
                )
            setattr(tokenizer, kind, token)
