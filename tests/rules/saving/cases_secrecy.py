"""Cases of secrets, remote code and pickled weights (XP590, XP701, XP790 to XP792)."""

from __future__ import annotations

from case_support import PLAIN, ROW, Case, spec

COMMIT = "3aab1f1954e9cc14eb9509a215f9e5ca08227a9b"
TOKEN = "hf_" + "aB3" * 12
UNKNOWN = f"org/x@{COMMIT} on infinity-instruct for 3 epochs"
UNPINNED = "org/x on infinity-instruct for 3 epochs"

CASES: tuple[Case, ...] = (
    Case(
        "XP590",
        spec(train='qwen2.5-3b on "../.aws/rows.jsonl" for 3 epochs'),
        spec(train='qwen2.5-3b on "../aws/rows.jsonl" for 3 epochs'),
        {"../.aws/rows.jsonl": ROW, "../aws/rows.jsonl": ROW},
    ),
    Case("XP701", spec("model(trust_remote_code)"), spec(f'model(trust_remote_code, revision="{COMMIT}")')),
    Case(
        "XP701",
        spec('model(trust_remote_code, revision="3aab1f1")'),
        spec(f'model(trust_remote_code, revision="{COMMIT}")'),
        variant="short",
    ),
    Case(
        "XP701",
        spec("model(trust_remote_code)", train=UNPINNED),
        spec("model(trust_remote_code)", train=UNKNOWN),
        variant="not-in-the-registry",
    ),
    Case(
        "XP701",
        spec("model(trust_remote_code)", train=UNPINNED.replace("org/x", "org/x@main")),
        spec("model(trust_remote_code)", train=UNKNOWN),
        variant="branch",
    ),
    Case("XP706", spec(save='save "../../.ssh/run"'), spec(save='save "../../ssh/run"')),
    Case("XP706", spec(save='save "/usr/lib/run"'), spec(save='save "/scratch/usr/lib/run"'), variant="system"),
    Case("XP706", spec(save='save "out/../../.ssh"'), spec(save='save "out/../.ssh"'), variant="above"),
    Case("XP706", spec(save='save "~/run"'), spec(save='save "/home/me/run"'), variant="home"),
    Case("XP706", spec(save='save "out/$USER"'), spec(save='save "out/user"'), variant="variable"),
    Case("XP790", spec(f'track wandb(name="{TOKEN}")'), spec('track wandb(name="hf_run")')),
    Case("XP790", spec(f"# {TOKEN}"), spec("# the token is in HF_TOKEN"), variant="comment"),
    Case(
        "XP790",
        spec('track wandb(project="https://me:secret@host/x")'),
        spec('track wandb(project="https://host/x")'),
        variant="url",
    ),
    Case(
        "XP790",
        spec('model(chat_template=file("a.jinja"))'),
        spec('model(chat_template=file("b.jinja"))'),
        {"a.jinja": f"{{# {TOKEN} #}}" + PLAIN, "b.jinja": PLAIN},
        variant="template",
    ),
    Case("XP791", spec(f'track wandb(name="{COMMIT}")'), spec(f'track wandb(name="{COMMIT[:7]}")')),
    Case(
        "XP792",
        spec("model(pickle)", train=UNPINNED),
        spec("model(pickle)", train=UNKNOWN),
    ),
    Case(
        "XP792",
        spec('model(pickle, revision="v2")'),
        spec(f'model(pickle, revision="{COMMIT}")'),
        variant="tag",
    ),
)
