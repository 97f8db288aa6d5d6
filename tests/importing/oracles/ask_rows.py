"""Record the token ids and labels that a tool makes from the rows of token_cases.py, on a CPU.

python ask_rows.py axolotl|llamafactory OUT.jsonl [WORDS OF A CASE'S NAME ...]

Run it with the interpreter that has the tool. OUT.jsonl has a line for each case, with the case's rows in the tool's
order. In a row, `ids` has the token ids, and `trained` has the positions of the tokens with a loss. A preference pair
has `ids` and `trained` for each of its two answers.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import tempfile
from typing import Any

os.environ.update(AXOLOTL_DO_NOT_TRACK="1", HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="", WANDB_MODE="disabled",
                  AXOLOTL_SKIP_TELEMETRY="1", DISABLE_VERSION_CHECK="1", TOKENIZERS_PARALLELISM="false")  # fmt: skip
from answers import write
from token_cases import CASES, Case

Tokens = dict[str, list[int]]
UNTOUCHED: dict[str, Any] = {}
"""A copy of LLaMA-Factory's templates. A case may change the templates, so they are restored from this copy after each
case.
"""


def tokens(ids: Any, labels: Any) -> Tokens:
    """A row in the form of the records: its token ids, and the positions of the tokens that have a loss."""
    return {"ids": list(ids), "trained": [at for at, one in enumerate(labels) if one != -100]}


def answer(prompt: Any, ids: Any) -> Tokens:
    """Make a row in the form of the records from a prompt and an answer. The answer's tokens have a loss."""
    return {"ids": [*prompt, *ids], "trained": list(range(len(prompt), len(prompt) + len(ids)))}


def of_axolotl(case: Case) -> list[dict[str, Any]]:
    """The rows on which axolotl would train, tokenized. axolotl's trainer tokenizes preference pairs, and axolotl's
    `prepare_datasets` all other rows.
    """
    import transformers.training_args as training_args
    import yaml
    from axolotl.cli.config import plugin_set_cfg, prepare_plugins
    from axolotl.loaders import load_tokenizer
    from axolotl.utils import config as configs
    from axolotl.utils.data import prepare_datasets, prepare_preference_datasets, rl, sft
    from axolotl.utils.dict import DictDefault

    training_args.is_torch_bf16_gpu_available = training_args.is_torch_tf32_available = lambda: True
    for module in (sft, rl):
        # skip axolotl's cache: writing it takes half a minute per case
        module.save_preprocessed_dataset = lambda *_, **__: None
    with open("recipe.yaml", encoding="utf-8") as handle:
        cfg = DictDefault(yaml.safe_load(handle))
    prepare_plugins(cfg)
    capabilities = {"bf16": True, "fp8": True, "tf32": True, "n_gpu": 1, "compute_capability": "sm_90"}
    cfg = configs.validate_config(cfg, capabilities, {"torch_version": "2.13.0"})
    configs.normalize_config(cfg)
    configs.normalize_cfg_datasets(cfg)
    plugin_set_cfg(cfg)
    cfg.use_cpu, cfg.dataset_prepared_path, cfg.dataset_num_proc = True, "prepared", 1
    tokenizer = load_tokenizer(cfg)
    if cfg.rl:
        rows, _ = prepare_preference_datasets(cfg, tokenizer)
        return preferences(cfg, tokenizer, rows)
    made, *_ = prepare_datasets(cfg, tokenizer)
    # axolotl shuffles the rows randomly
    rows = sorted(made, key=lambda row: json.dumps(row, default=str, sort_keys=True))
    out: list[dict[str, Any]] = []
    for row in rows:
        if "chosen_ids" in row:
            out.append({"chosen": answer([], row["chosen_ids"]), "rejected": answer([], row["rejected_ids"])})
        else:
            out.append(tokens(row["input_ids"], row["labels"]))
    return out


def preferences(cfg: Any, tokenizer: Any, rows: Any) -> list[dict[str, Any]]:
    from axolotl.core.builders import HFRLTrainerBuilder
    from transformers import AutoConfig, AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("model"))
    model.save_pretrained("model")  # axolotl loads the reference model from this folder
    builder = HFRLTrainerBuilder(cfg, model, tokenizer)
    builder.train_dataset, builder.model_ref = rows, None
    made = builder.build(4).train_dataset
    out: list[dict[str, Any]] = []
    for row in list(made):
        if "chosen_ids" in row:
            out.append({one: answer(row["prompt_ids"], row[f"{one}_ids"]) for one in ("chosen", "rejected")})
        elif "chosen_input_ids" in row:
            out.append({one: tokens(row[f"{one}_input_ids"], row[f"{one}_labels"]) for one in ("chosen", "rejected")})
        else:
            out.append({**answer(row["prompt_ids"], row["completion_ids"]), "label": row["label"]})
    return out


def of_llamafactory(case: Case) -> list[dict[str, Any]]:
    """The rows that LLaMA-Factory prepares."""
    import ask_llamafactory
    import yaml
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
    from llamafactory.data.template import TEMPLATES
    from llamafactory.hparams import get_train_args
    from transformers import AutoTokenizer

    ask_llamafactory.answers()
    # A case changes LLaMA-Factory's global templates. So each case gets a fresh copy of them.
    TEMPLATES.update(copy.deepcopy(UNTOUCHED.setdefault("all", copy.deepcopy(TEMPLATES))))
    with open("recipe.yaml", encoding="utf-8") as handle:
        table = yaml.safe_load(handle)
    table.update(use_cpu=True, overwrite_cache=True)
    model, data, trainer, tuning, _ = get_train_args(table)
    tokenizer = AutoTokenizer.from_pretrained(model.model_name_or_path)
    template = get_template_and_fix_tokenizer(tokenizer, data)
    stage = {"dpo": "rm"}.get(tuning.stage, tuning.stage)
    rows = get_dataset(template, model, data, trainer, stage=stage, tokenizer=tokenizer)["train_dataset"]
    out: list[dict[str, Any]] = []
    for row in rows:
        if "chosen_input_ids" in row:
            # a reward model's score is for the whole row, so every token counts
            trained = "input_ids" if tuning.stage == "rm" else "labels"
            out.append(
                {one: tokens(row[f"{one}_input_ids"], row[f"{one}_{trained}"]) for one in ("chosen", "rejected")}
            )
        else:
            out.append(tokens(row["input_ids"], row.get("labels", row["input_ids"])))
            out[-1].update({"label": row["kto_tags"]} if "kto_tags" in row else {})
    return out


def main() -> None:
    """Record the rows of every case, or the error of the tool."""
    from importlib.metadata import version

    tool, out = sys.argv[1], os.path.abspath(sys.argv[2])
    ask = of_axolotl if tool == "axolotl" else of_llamafactory
    lines: list[dict[str, Any]] = []
    for case in CASES[tool]:
        if sys.argv[3:] and not any(one in case.name for one in sys.argv[3:]):
            continue
        with tempfile.TemporaryDirectory() as folder:
            case.lay(tool, folder)
            os.chdir(folder)
            try:
                found: dict[str, Any] = {"rows": ask(case)}
            except (Exception, SystemExit) as error:
                found = {"refused": f"{type(error).__name__}: {error}".replace(folder, "")[:300]}
            os.chdir("/")
        lines.append({"case": case.name, **found})
        print(case.name, found.get("refused", len(found.get("rows", ()))), file=sys.stderr, flush=True)
    write(out, {"tool": tool, "version": version(tool)}, lines)


if __name__ == "__main__":
    main()
