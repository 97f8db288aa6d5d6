"""Apply Liger's kernels to the layers of one loaded model. Liger's public functions change all models of a family."""

from ..core.feature import Bundle, Feature, Model, Tokenizer


class Liger(Feature):
    """Hooks for a run with Liger's kernels in the layers of the model."""

    def model_loaded(self, bundle: Bundle, model: Model, tokenizer: Tokenizer) -> None:
        """Apply Liger's layer kernels (norm, rope, gated MLP) to the model. Liger's fused loss is not used, because trl
        1.16 has its own.
        """
        from liger_kernel.transformers import _apply_liger_kernel_to_instance

        _apply_liger_kernel_to_instance(model=model, fused_linear_cross_entropy=False, cross_entropy=False)
