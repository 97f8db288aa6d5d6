"""Every setting is typed in its block in the notation of YAML, JSON, TOML, Python and command lines. The suggested
edits lead to the setting in this block.
"""

from __future__ import annotations

import pytest
from compile_support import checked, edited

from xpc.compiler.language import schema
from xpc.compiler.language.expand import expand
from xpc.compiler.language.kinds import BLOCK, FLAG
from xpc.compiler.suggest.known_names import NEVER_LEGAL
from xpc.compiler.suggest.legal import example
from xpc.grammar.diagnostic import ERROR, applied
from xpc.grammar.parse import parse
from xpc.grammar.source import Source

LINE = "train qwen2.5-3b on infinity-instruct\n"
HEADS = {
    "strategy": "strategy zero2", "precision": "precision bf16", "optimizer": "optimizer adamw",
    "schedule": "schedule cosine", "track": "track wandb", "save": 'save "out/a"',
}  # fmt: skip
UNCLEAR = ("model.rope", "model.config", "launch.setup", "method.completion_only")
"""Settings whose example is refused for a reason that has nothing to do with pasting, such as a file that does not
exist.
"""
LINES = {
    "YAML": "{}: {}",
    "JSON": '"{}": {},',
    "a dictionary": "'{}': {},",
    "an option": "--{} {}",
    "a comma": "{} = {},",
}
BLOCKS = {
    "YAML": "{head}:\n  {name}: {value}\n",
    "YAML with braces": "{head}: {{\n  {name} = {value}\n}}\n",
    "an equals sign": "{head} = {{\n  {name} = {value}\n}}\n",
    "JSON": '"{head}": {{\n  "{name}": {value}\n}}\n',
    "TOML": "[{head}]\n{name} = {value}\n",
    "a mapping": "{head}: {{{name}: {value}}}\n",
    "a dictionary": '{head} = {{"{name}": {value}}}\n',
}


def settings(inner: bool) -> list[schema.Setting]:
    rows = [row for row in schema.TABLE if "." in row.path and row.clause not in ("train", "sweep")]
    rows = [row for row in rows if row.path not in (*NEVER_LEGAL, *UNCLEAR) and "(" not in example(row)]
    return [row for row in rows if inner or row.path.count(".") == 1]


def value_of(row: schema.Setting) -> str:
    return "true" if row.kind in (FLAG, BLOCK) else example(row)


def heads(row: schema.Setting) -> list[str]:
    clause, *inner, _ = row.path.split(".")
    head = HEADS.get(clause, clause)
    head = f"method {(row.methods or ('sft',))[0]}" if clause == "method" else head
    head = f"launch {(row.engines or ('slurm',))[0]}" if clause == "launch" else head
    return [head, *inner]


def in_block(row: schema.Setting, line: str) -> str:
    opened = heads(row)
    return LINE + "".join(f"{head} {{\n" for head in opened) + f"  {line}\n" + "}\n" * len(opened)


def values(text: str) -> dict[str, str]:
    file, problems = parse(Source("t.xp", text))
    assert problems == ()
    spec = expand(file)
    assert [one.message for one in spec.problems] == []
    return {
        path: text[item.node.span.start : item.node.span.end].strip('"') if item.node else ""
        for path, item in spec.items.items()
    }


def after_edits(text: str) -> str:
    """The text after the edits of all findings about syntax and names, in at most three rounds."""
    for _ in range(3):
        found = [one for one in checked(text).problems if one.severity == ERROR and one.code[:3] in ("XP0", "XP1")]
        edits = {one.span: one for finding in found for one in finding.edits}
        if not edits:
            break
        text = applied(text, edits.values())
    return text


def differs(text: str, row: schema.Setting) -> str:
    """Apply the suggested edits. Return the edited text if it does not mean the same as the setting in its block;
    otherwise "".
    """
    right = in_block(row, f"{row.name} = {value_of(row)}")
    after = after_edits(text)
    return "" if not parse(Source("t.xp", after))[1] and values(after) == values(right) else f"{row.path}: {after}"


@pytest.mark.slow
@pytest.mark.parametrize("form", LINES)
def test_a_pasted_line_becomes_a_setting_of_its_block(form):
    wrong = [differs(in_block(row, LINES[form].format(row.name, value_of(row))), row) for row in settings(True)]
    assert len(wrong) >= 190
    assert [one for one in wrong if one] == []


@pytest.mark.slow
@pytest.mark.parametrize("form", BLOCKS)
def test_a_pasted_block_becomes_a_block(form):
    rows = [
        row
        for row in settings(False)
        if form not in ("JSON", "TOML", "a mapping", "a dictionary") or heads(row)[0].isalpha()
        # a mapping on one line whose text has braces gets a help without an edit
        if form not in ("a mapping", "a dictionary") or "{" not in value_of(row)
    ]
    texts = [LINE + BLOCKS[form].format(head=heads(row)[0], name=row.name, value=value_of(row)) for row in rows]
    assert len(rows) >= 60
    assert [found for row, text in zip(rows, texts, strict=True) if (found := differs(text, row))] == []


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("lora {\n  rank: 8\n}\n", "lora {\n  rank=8\n}\n"),
        ("lora:\n  r: 8\n  alpha: 16\nseed = 1\n", "lora {\n  rank=8\n  alpha=16\n}\nseed = 1\n"),
        ("[lora]\nrank = 8\n", "lora {\nrank = 8\n}\n"),
        ('"lora": {\n  "rank": 8\n}\n', "lora {\n  rank=8\n}\n"),
        ("lora = {'r': 8}\n", "lora(rank=8)\n"),
        ("lora:\n  target_modules:\n  - q_proj\n  - v_proj\n", "lora {\n  targets=[q_proj, v_proj]\n}\n"),
        ("training:\n  lr: 1e-5\n", "\n  lr=1e-5\n"),
        ("lora {\n  targets [q_proj]\n}\n", "lora {\n  targets=[q_proj]\n}\n"),
        ("learning rate = 1e-5\n", "lr=1e-5\n"),
        ("batch {\n  micro batch size: 4\n}\n", "batch {\n  micro=4\n}\n"),
        ("args = SFTConfig(\n  learning_rate=1e-5,\n  max_length=2048,\n)\n", "lr=1e-5\nseq=2048\n"),
        ("peft_config = LoraConfig(r=8, lora_alpha=16)\n", "lora(rank=8, alpha=16)\n"),
        ("params {\n  rank = 8\n  alpha = 16\n}\n", "lora(rank=8, alpha=16)\n"),
        ("optimizer adamw {\n  LR = 1e-5\n}\n", "optimizer adamw {\n  lr = 1e-5\n}\n"),
        ("optimizer {\n  type = adafactor\n  lr = 1e-5\n}\n", "optimizer adafactor {\n  lr = 1e-5\n}\n"),
        ("optimizer(type=adafactor, lr=1e-5)\n", "optimizer adafactor(lr=1e-5)\n"),
        ("lr_scheduler:\n  _component_: a.get_cosine_schedule_with_warmup\n", "schedule cosine {\n}\n"),
        ("metric_logger:\n  _component_: a.WandBLogger\n  project: p\n", 'track wandb {\n  project="p"\n}\n'),
        ('"optimizer": {\n  "type": "AdamW",\n  "lr": 1e-5\n}\n', "optimizer adamw {\n  lr=1e-5\n}\n"),
        ('"optimizer": {\n  "params": {\n    "lr": 1e-5\n  }\n}\n', "optimizer {\n\n    lr=1e-5\n\n}\n"),
        ('"bf16": {\n  "enabled": true\n}\n', "bf16\n"),
        ("dpo:\n  beta: 0.1\n", "method dpo {\n  beta=0.1\n}\n"),
        ("sbatch {\n  time = 12h\n  qos = a\n}\n", 'launch slurm(time=12h, qos="a")\n'),
        ("sweep:\n  lr:\n    values: [1e-5, 2e-5]\n", "sweep {\n  lr = [1e-5, 2e-5]\n}\n"),
        ("parameters:\n  lr:\n    values: [1e-5, 2e-5]\n", "sweep {\n  lr = [1e-5, 2e-5]\n}\n"),
        ("lora(rank=16)\nlora(alpha=32)\n", "lora(rank=16, alpha=32)\n"),
        ("memory = [liger, checkpointing]\n", "memory {\n  liger\n  checkpointing\n}\n"),
        ("lora {\n  rank: 16, // small\n}\n", "lora {\n  rank=16  # small\n}\n"),
    ],
)
def test_edits_of_blocks_lead_to_the_setting(typed, right):
    assert after_edits(LINE + typed) == LINE + right


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("model: qwen2.5-3b\ndataset: alpaca\nepochs: 3\n", "train qwen2.5-3b on alpaca for 3 epochs\n"),
        ("train:\n  model: qwen2.5-3b\n  data: alpaca\n", "\ntrain qwen2.5-3b on alpaca\n"),
        ("train qwen2.5-3b\n  on alpaca\n  for 3 epochs\n", "train qwen2.5-3b on alpaca for 3 epochs\n"),
        ("xpc: 1\ntrain qwen2.5-3b on alpaca\n", "xpc 1\ntrain qwen2.5-3b on alpaca\n"),
        (
            "train qwen2.5-3b on m\ndata m = [alpaca, capybara]\n",
            "train qwen2.5-3b on m\ndata m {\n  alpaca\n  capybara\n}\n",
        ),
    ],
)
def test_edits_of_whole_files_lead_to_a_spec(typed, right):
    assert after_edits(typed) == right


def test_a_configuration_of_another_tool_as_a_whole_is_imported():
    text = "base_model: a/b\nsequence_len: 2048\nmicro_batch_size: 2\nlearning_rate: 1e-5\nseed: 1\n"
    helps = [one.help or "" for one in checked(text).problems]
    assert sum("`xpc import`" in one for one in helps) == 1
    assert not any("`xpc import`" in (one.help or "") for one in checked(LINE + text).problems)


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("with lr=1e-4, gbs=64, and bf16", "with lr=1e-4 gbs=64 bf16"),
        ("with lr: 1e-4, 2 epochs", "for 2 epochs with lr=1e-4"),
        ("with lora(rank=8, alpha=16), bf16", "with lora(rank=8, alpha=16) bf16"),
        ("with bf16 and the liger", "with bf16 liger"),
        ("with trust remote code true", "with trust_remote_code"),
    ],
)
def test_the_first_line_loses_its_punctuation(typed, right):
    assert after_edits(f"{LINE.strip()} {typed}\n") == f"{LINE.strip()} {right}\n"


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("strategy deepspeed_stage_2_offload\n", "write `strategy zero2(offload=optimizer)`"),
        ("lora = dict(rank=8)\n", "write `lora(rank=8)`"),
        ("fp16 {\n  enabled = true\n}\n", "leave `enabled` out"),
        ("hardware:\n  gpu: h100-80gb\n  count: 8\n", "write `hardware 8 x h100-80gb`"),
        ("data {\n  datasets = [smoltalk, capybara]\n}\n", "write the source `smoltalk`"),
        ("limit_train_batches = 0.1\n", "`SOURCE(take=10%)`"),
        ("data {\n  drop_rows_with_fewer_tokens = 16\n}\n", "write `min_tokens`"),
    ],
)
def test_helps(typed, says):
    helps = [one.help or "" for one in checked(LINE + typed).problems if one.severity == ERROR]
    assert any(says in one for one in helps), helps
    assert edited(LINE + typed, checked(LINE + typed).problems[0]) is not None
