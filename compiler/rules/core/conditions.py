"""Conditions for `WHEN`. Each module of rules has a variable `WHEN`, which says for which specs its rules run."""

from __future__ import annotations

from collections.abc import Callable

from xpc.compiler.data.shapes import WITH_IMAGES
from xpc.compiler.files.secrets import suspect
from xpc.compiler.language.launch_settings import ENGINES
from xpc.compiler.language.schema import children
from xpc.compiler.language.setting import FlagPath, Path, TextPath
from xpc.compiler.registry.chat_templates import base_end
from xpc.compiler.spec import Spec

Condition = Callable[[Spec], bool]
FEW = 2**16
"""A source with at least this many rows certainly has more rows than one batch of any run."""


def always(spec: Spec) -> bool:
    """True for every spec."""
    return True


def written(*paths: Path) -> Condition:
    """True if the spec, or a base spec that it extends, states one of the settings."""
    return lambda spec: any(map(spec.written, paths))


def has_value(*paths: Path) -> Condition:
    """True if one of the settings has a value, stated in the spec or derived by xpc."""
    return lambda spec: any(spec.get(path) is not None for path in paths)


def enabled(*paths: FlagPath) -> Condition:
    """True if at least one of the settings, which must be booleans, is true."""
    return lambda spec: any(map(spec.flag, paths))


def chosen(path: TextPath, *choices: str) -> Condition:
    """True if the value of the setting is one of the given choices: `chosen("precision", "fp8")`."""
    return lambda spec: spec.get(path) in choices


def not_chosen(path: TextPath, *choices: str) -> Condition:
    """True if the value of the setting is none of the given choices."""
    return lambda spec: spec.get(path) not in choices


def extra(*names: str) -> Condition:
    """True if the spec has one of the named `extra` blocks: `extra("trl")` looks for `extra trl { ... }`."""
    return lambda spec: any(map(spec.extra.get, names))


def any_of(*conditions: Condition) -> Condition:
    """True if at least one of the conditions is true."""
    return lambda spec: any(one(spec) for one in conditions)


def all_of(*conditions: Condition) -> Condition:
    """True if all of the conditions are true."""
    return lambda spec: all(one(spec) for one in conditions)


def adapters(spec: Spec) -> bool:
    """True if the run trains LoRA or another kind of adapters."""
    return spec.lora


def generates(spec: Spec) -> bool:
    """True if the method trains the model on completions that the model generates."""
    return spec.online


def grouped(spec: Spec) -> bool:
    """True if the method compares the completions of one prompt with each other."""
    return spec.method.grouped


def preferences(spec: Spec) -> bool:
    """True if the method can train on preference pairs, as dpo and reward do."""
    return "preference" in spec.method.shapes


def quantized(spec: Spec) -> bool:
    """True if the published weights of the model are quantized."""
    return "quantization_config" in spec.model.config or spec.in_mxfp4


def routed(spec: Spec) -> bool:
    """True if a layer of the model calls only the experts that get tokens, so that processes call different experts."""
    return spec.model.model_type in spec.stack.facts.expert_blocks


def states_its_class(spec: Spec) -> bool:
    """True if the config.json of the model or of the teacher states the class of the saved model (`architectures`)."""
    return any("architectures" in one.config for one in spec.models)


def outside_of_the_registry(spec: Spec) -> bool:
    """True if the registry does not have the model or the teacher."""
    return any(one.known_from != "registry" for one in spec.models)


def gemma(spec: Spec) -> bool:
    """True if the model is a Gemma. The chat template of these models has no place for a system prompt."""
    return spec.model.name.startswith("gemma-")


def older_transformers(spec: Spec) -> bool:
    """True if the stack's transformers is older than 5. Such a transformers cannot read all files that transformers 5
    saves.
    """
    return not spec.stack.facts.reads_newer_files


def names_an_engine(spec: Spec) -> bool:
    """True if the spec states `launch`, or a setting that only some engines, such as slurm, read."""
    written = (row.engines and spec.written(row.path) for row in children("launch"))
    return spec.get("launch") != ENGINES[0] or any(written)


def few_rows(spec: Spec) -> bool:
    """True if the data may have fewer rows than one batch. False for a stream: when its rows end, the stream starts
    again, so every batch is full.
    """
    return not spec.flag("data.streaming") and any(one.path or one.take or (one.rows or FEW) < FEW for one in spec.data)


def counted_rows(spec: Spec) -> bool:
    """True if some source has a known number of rows, because the source is a local file or has a `take`."""
    return any(one.path or one.take for one in spec.sources)


def mixture(spec: Spec) -> bool:
    """True if the data has several sources, or if a source has a `share`."""
    shares = any(one.share is not None for one in spec.sources)
    return len(spec.data) > 1 or shares or spec.written("data.exhausted")


def raw_text(spec: Spec) -> bool:
    """True if a source is a .txt file, or if the spec says how texts become rows (`documents`, `long`)."""
    return any(one.documents for one in spec.sources) or spec.written("data.documents") or spec.written("data.long")


def plain_texts(spec: Spec) -> bool:
    """True if a source is a local file or folder of plain text."""
    return any(one.shape == "text" and one.path for one in spec.sources)


def token_rows(spec: Spec) -> bool:
    """True if a source has tokenized rows, or has a column of token ids in addition to other columns."""
    return any(one.shape == "tokens" or "input_ids" in (one.found or ()) for one in spec.sources)


def pictured(spec: Spec) -> bool:
    """True if the model reads images, or a source has rows with images."""
    return spec.reads_images or any(one.shape in WITH_IMAGES for one in spec.sources)


def data_folders(spec: Spec) -> bool:
    """True if a source is a folder."""
    return any(one.parts for one in spec.sources)


def local_tokenizer(spec: Spec) -> bool:
    """True if the model is a local folder and the end token of its tokenizer is known."""
    return spec.model.eos is not None


def base_model(spec: Spec) -> bool:
    """True if the run trains a registered base model on at least one local file, and the model's end token is known."""
    return any(one.path for one in spec.data) and base_end(spec.model.name) is not None


def prompted_texts(spec: Spec) -> bool:
    """True if a source has prompts and answers that may be plain text, and the spec does not say whether to turn them
    into conversations (`data(chat)`).
    """
    prompted = ("prompt_completion", "preference", "unpaired")
    stated = spec.written("data.chat") or spec.written("data.prompt_template")
    return not stated and any(one.shape in prompted and not one.chat for one in spec.data)


def surveyed(spec: Spec) -> bool:
    """True if at least one local file was read completely."""
    return any(one.sha256 or one.parts for one in spec.sources)


def evaluation_rows(spec: Spec) -> bool:
    """True if the spec names separate evaluation data."""
    return bool(spec.evaluated)


def pickled_weights(spec: Spec) -> bool:
    """True if a local model, or a local teacher, has only pickled weights."""
    return any(one.pickled for one in spec.models)


def may_have_secrets(spec: Spec) -> bool:
    """True if a secret may get into the bundle: the bundle contains files other than data, the run's name or project
    has 40 characters, or some text looks like a secret.
    """
    if any(not name.startswith("data/") for name in spec.bundled):
        return True
    if any(isinstance(one, str) and len(one) == 40 for one in (spec.get("track.name"), spec.get("track.project"))):
        return True
    texts = {spec.source.text}
    texts.update(one.origin.label.source.text for one in spec.values.values() if one.origin.label is not None)
    return any(map(suspect, texts))


def fused_loss(spec: Spec) -> bool:
    """True if the trainer's loss, and not the model, multiplies the hidden states by the output head's weight. The
    trainers of some stacks do so by default, others if the spec sets `use_liger_loss`.
    """
    return spec.stack.facts.fused_head or spec.extra_value("trl", "use_liger_loss") is True


def batched_evaluation(spec: Spec) -> bool:
    """True if the spec evaluates several rows together without packing them, because it states `eval.micro`."""
    return (
        spec.evaluates
        and spec.written("eval.micro")
        and spec.integer("eval.micro") > 1
        and not spec.flag("batch.packing")
    )


def has_advisory(spec: Spec) -> bool:
    """True if the rule XP940 may report an advisory for the spec. The rule's advisories are about ZeRO's reduction,
    accumulation, fused and other losses, masked or truncated completions, evaluations in batches, and weight decay
    of norms.
    """
    if batched_evaluation(spec):
        return True
    if spec.get("optimizer.weight_decay") and spec.stack.facts.decays_norms:
        return True
    if spec.zero_stage and spec.get("strategy.overlap_comm") is True:
        return True
    if spec.zero_stage == 3 and spec.stack.facts.zero3_reduces_early:
        return True
    if spec.zero_stage and spec.integer("batch.accum") > 1 and spec.stack.facts.zero_counts_micro_batches:
        return True
    special = spec.extra_value("trl", "use_liger_loss") is not None or spec.get("method.mask_truncated") is True
    special = special or spec.flag("method.vllm") or spec.written("method.loss")
    return spec.get("method") != "sft" and (special or spec.integer("batch.accum") > 1)
