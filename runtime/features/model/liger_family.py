"""Check that Liger has kernels for a model family that was unknown when the spec was compiled."""

from ...core.errors import first_line
from ...core.feature import Bundle, Feature, Tokenizer


class LigerFamily(Feature):
    """Hooks for a model whose family was unknown when the spec was compiled."""

    def before_rows(self, bundle: Bundle, tokenizer: Tokenizer | None) -> list[str]:
        """A finding if Liger has no kernels for the model's family: Liger itself would only log this."""
        import transformers

        family = transformers.AutoConfig.from_pretrained(bundle.model_path, **bundle.loading()).model_type
        try:
            from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN
        except ImportError as error:
            return [f"liger-kernel cannot be used: {first_line(error)}"]
        known = family in MODEL_TYPE_TO_APPLY_LIGER_FN
        return [] if known else [f"Liger has no kernels for the family {family!r}; remove `liger`"]
