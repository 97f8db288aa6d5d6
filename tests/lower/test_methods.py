"""The settings of methods and adapters become the right arguments, sections and files of a bundle."""

from __future__ import annotations

import ast
import json
import os
from hashlib import sha256
from pathlib import Path

import pytest
from case_support import spec
from compile_support import HEAD, checked, compiled, errors, only, put, read, shown, value
from interpreters import stack_of
from method_support import ON, PAIRS, PROMPTS, REWARDS, arguments, of, plan, some

from xpc.compiler import stacks
from xpc.compiler.language import rewards, schema
from xpc.compiler.language.methods import METHODS
from xpc.compiler.lower.method import method_facts

OLD = "trl-0.18"

# -- every method, on both targets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", stacks.names())
@pytest.mark.parametrize("method", METHODS)
def test_a_bare_method_states_every_argument_of_its_class(method: str, target: str) -> None:
    stack = stack_of(target)
    text = spec(of(method), f"target {target}", train=ON[method])
    if stack.refused(method):
        assert errors(checked(text)) == ["XP127"]
        return
    found = json.loads(compiled(text)["trainer_args.json"])
    config = stack.config(method)
    assert (found["config"], found["method"]["name"]) == (config, method)
    assert set(stack.base_arguments(config)) - {"use_cpu"} <= set(found["arguments"])
    assert set(found["arguments"]) <= set(stack.fields(config))
    left_alone = {"learning_rate", "beta", "loss_type", "num_generations", "max_completion_length", "temperature"}
    if METHODS[method].defaults:
        # These defaults are the language's, not a library's. So every stack whose trainer has the argument gets the
        # same value.
        for path, value in METHODS[method].defaults.items():
            for name in set(schema.BY_PATH[path].args) & set(stack.fields(config)):
                assert found["arguments"][name] == value, path
        return
    base = stack.base_arguments(config)
    for name in left_alone & set(base):
        stated, usual = found["arguments"][name], base[name]
        assert stated in (usual, [usual]), name


@pytest.mark.parametrize("target", stacks.names())
@pytest.mark.parametrize("method", METHODS)
def test_no_argument_is_stated_that_its_class_calls_deprecated(method: str, target: str) -> None:
    stack = stack_of(target)
    if stack.refused(method):
        return
    fields = stack.fields(stack.config(method))
    text = spec(of(method), "data(workers=4)", f"target {target}", train=ON[method])
    payload = json.loads(compiled(text)["trainer_args.json"])
    assert payload["data"]["workers"] == 4
    assert [name for name in payload["arguments"] if fields[name].deprecated] == []
    taken = "dataset_num_proc" in fields and not fields["dataset_num_proc"].deprecated
    assert payload["arguments"].get("dataset_num_proc") == (4 if taken else None)


@pytest.mark.parametrize("target", stacks.names())
@pytest.mark.parametrize("method", METHODS)
def test_the_spec_of_a_bundle_compiles_to_the_same_arguments(method: str, target: str) -> None:
    stack = stack_of(target)
    if stack.refused(method):
        return
    clause = f"method {method}(rewards=[accuracy(weight=0.5), format])" if METHODS[method].grouped else of(method)
    first = compiled(spec(clause, "qlora", f"target {target}", train=ON[method]), name="a.xp")
    again = compiled(first["spec.xp"], name="a.xp")
    assert json.loads(again["trainer_args.json"]) == json.loads(first["trainer_args.json"])
    lines, before = (one["spec.xp"].count(b"\n") for one in (again, first))
    parts = first["spec.xp"].count(b"\n  checkpointing.")
    # the first spec.xp has a line for each setting of checkpointing; the second one writes them as
    # `checkpointing(reentrant=false)`
    assert lines == before - parts
    assert b"\n  checkpointing." not in again["spec.xp"]


def test_the_learning_rate_that_nobody_wrote_is_the_classs_own() -> None:
    assert value(spec("method dpo", train=PAIRS), "optimizer.lr") == 1e-6
    assert value(spec("method reward", train=PAIRS), "optimizer.lr") == 1e-4
    assert value(spec("method reward", "target trl-0.18", train=PAIRS), "optimizer.lr") == 5e-5
    assert value(spec("method dpo", "optimizer adamw(lr=5e-7)", train=PAIRS), "optimizer.lr") == 5e-7
    assert value(HEAD, "optimizer.lr") == 2e-5


# -- preference -------------------------------------------------------------------------------------------------------


def test_what_a_loss_may_not_be() -> None:
    found = checked(spec("method dpo(loss=sigmod)", train=PAIRS))
    assert errors(found) == ["XP106"]
    assert only(found, "XP106").edits[0].text == "sigmoid"
    assert errors(checked(spec("method dpo(loss=[sigmoid, apo_zero])", "target trl-0.18", train=PAIRS))) == ["XP127"]
    assert errors(checked(spec("method kto(loss=[kto, apo_zero_unpaired])", train=PAIRS))) == ["XP104"]
    assert errors(checked(spec("method kto(loss=kto(weight=2))", train=PAIRS))) == ["XP104"]
    assert "sft" in (only(checked(spec("method dpo(rpo=1)", train=PAIRS)), "XP127").help or "")


# -- reinforcement ----------------------------------------------------------------------------------------------------

GRPO = """\
method grpo {
  generations = 16
  max_completion = 2048
  temperature = 0.7
  rewards = [accuracy(weight=1), format(weight=0.5), "rewards.py:tag_count"]
  vllm {
    mode = colocate
    gpu_memory = 70%
  }
}"""


def test_the_example_of_the_language_becomes_arguments(tmp_path: Path) -> None:
    root = put(tmp_path, {"rewards.py": REWARDS})
    found = plan(GRPO, root=root, train=PROMPTS)
    names = ("num_generations", "max_completion_length", "temperature", "reward_weights", "use_vllm", "vllm_mode",
             "vllm_gpu_memory_utilization", "steps_per_generation")  # fmt: skip
    expected = (16, 2048, 0.7, [1.0, 0.5, 1.0], True, "colocate", 0.7, 1)
    assert some(found["arguments"], *names) == dict(zip(names, expected, strict=True))
    digest = sha256(REWARDS.encode()).hexdigest()
    inside = f"files/rewards-{digest[:8]}.py"
    assert found["method"] == {
        **method_facts(METHODS["grpo"]),
        "rewards": [
            {"name": "accuracy", "file": None, "function": None, "sha256": None},
            {"name": "format", "file": None, "function": None, "sha256": None},
            {"name": "rewards.py:tag_count", "file": inside, "function": "tag_count", "sha256": digest},
        ],
    }
    files = compiled(spec(GRPO, train=PROMPTS), root)
    assert files[inside] == REWARDS.encode()
    assert f'"rewards.py" = "sha256:{digest}"'.encode() in files["bundle.toml"]
    assert {b"numpy==2.3.5", b"transformers==5.23.0", b"vllm==0.30.0"} <= set(files["requirements.txt"].splitlines())
    assert b"math-verify==" in files["requirements.txt"]
    assert b"128 completions per step = 8 prompts x 16" in files["README.md"]
    assert b"128 = 16 completions x 1 accumulation" in files["launch.sh"]


def test_weights_of_rewards_become_arguments(tmp_path: Path) -> None:
    root = put(tmp_path, {"rewards.py": REWARDS})
    got = arguments('method grpo(rewards=[format, file("rewards.py:tag_count", weight=2)])', root=root, train=PROMPTS)
    assert got["reward_weights"] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("written", "source", "code"),
    [
        ('"rewards.py:other"', REWARDS, "XP114"),
        ('"rewards.py:tag_count"', "def tag_count(:\n", "XP114"),
        ('"rewards.py:tag_count"', "def outer():\n    def tag_count(): pass\n", "XP114"),
        ('"rewards.py:tag_count"', "\0", "XP114"),
        ('"rewards.py:tag_count"', "x = " + "(" * 5000 + "\n", "XP114"),
        ('"missing.py:tag_count"', REWARDS, "XP114"),
        ('"/etc/rewards.py:tag_count"', REWARDS, "XP114"),
        ('"rewards.py"', REWARDS, "XP107"),
        ('"rewards.py:a b"', REWARDS, "XP107"),
        ('"rewards.txt:tag_count"', REWARDS, "XP107"),
        ("acuracy", REWARDS, "XP106"),
        ("code", REWARDS, "XP106"),
        ("accuracy(weight=1, scale=2)", REWARDS, "XP104"),
        ("accuracy(2)", REWARDS, "XP104"),
        ("file(weight=2)", REWARDS, "XP104"),
        ("[]", REWARDS, "XP104"),
    ],
)
def test_rewards_that_are_refused(written: str, source: str, code: str, tmp_path: Path) -> None:
    found = checked(spec(f"method grpo(rewards={written})", train=PROMPTS), put(tmp_path, {"rewards.py": source}))
    assert errors(found) == [code], shown(found)


def test_arguments_inside_the_quotes_get_the_form_with_file(tmp_path: Path) -> None:
    root = put(tmp_path, {"rewards.py": REWARDS})
    found = only(checked(spec('method grpo(rewards=["rewards.py:tag_count(weight=2)"])', train=PROMPTS), root), "XP107")
    assert found.help == 'write `file("rewards.py:tag_count", weight=2)`'
    assert arguments('method grpo(rewards=[file("rewards.py:tag_count", weight=2)])', root=root, train=PROMPTS)


@pytest.mark.parametrize(
    "source",
    [
        REWARDS,
        "async def tag_count(completions, **others): ...\n",
        "from functools import partial\ntag_count = partial(print)\n",
        "from .x import y as tag_count\n",
        "try:\n    import a\nexcept ImportError:\n    def tag_count(): ...\n",
        "if True:\n    tag_count: object = print\n",
    ],
)
def test_every_way_to_define_a_reward_is_accepted(source: str, tmp_path: Path) -> None:
    root = put(tmp_path, {"rewards.py": source})
    assert arguments('method grpo(rewards="rewards.py:tag_count")', root=root, train=PROMPTS)["reward_weights"] is None


def test_compiling_executes_nothing_of_a_reward_file(tmp_path: Path) -> None:
    source = f"import os\nopen({os.path.join(tmp_path, 'ran')!r}, 'w')\nraise SystemExit(3)\n" + REWARDS
    root = put(tmp_path, {"rewards.py": source})
    plan('method grpo(rewards="rewards.py:tag_count")', root=root, train=PROMPTS)
    assert os.listdir(root) == ["rewards.py"]


def test_the_rewards_of_the_language_are_those_of_the_runtime() -> None:
    tree = ast.parse(read("runtime", "features", "method", "rewards.py"))
    tables = {
        node.target.id: node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    names = {ast.literal_eval(key) for table in ("PLAIN", "CONFIGURABLE") for key in tables[table].keys}
    assert names == set(rewards.REWARDS)
    body = ast.parse(read("runtime", "features", "launch", "packages.py")).body
    math = next(n.value for n in body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "MATH")
    assert set(ast.literal_eval(math)) == set(rewards.MATH)


def test_readme_and_requirements_name_vllm_where_a_run_uses_it() -> None:
    readme = compiled(spec("method grpo(rewards=format, vllm(mode=server, port=8001))", train=PROMPTS))[
        "README.md"
    ].decode()
    assert "python3 trainer/vllm_server.py --tensor-parallel 1 --data-parallel 8" in readme
    assert "the port, 8001:" in readme
    assert b"vllm" not in compiled(spec("method grpo(rewards=format)", train=PROMPTS))["requirements.txt"]
    old = compiled(spec("method grpo(rewards=format, vllm)", "target trl-0.18", train=PROMPTS))["requirements.txt"]
    assert {b"torch==2.6.0", b"vllm==0.8.5.post1"} <= set(old.splitlines())


def test_gbs_counts_completions() -> None:
    text = "xpc 1\ntrain qwen2.5-3b on deepmath-103k for 1 epochs\nhardware 3 x h100-80gb\nstrategy zero2\n"
    text += "method grpo(rewards=format)\n"
    found = checked(text)
    assert found.spec is not None, shown(found)
    gbs = found.spec.integer("batch.gbs")
    assert gbs % (3 * 8) == 0  # complete groups of 8 completions on each of 3 processes
    assert abs(gbs - 128) <= 12
    assert found.spec.integer("batch.seq") == 512 + 512
    assert errors(checked(spec("method grpo(rewards=format)", train=PROMPTS, batch="gbs=128 micro=16 seq=2048"))) == [
        "XP126"
    ]


def test_evaluation_batch_has_complete_groups() -> None:
    got = arguments("method grpo(rewards=format, generations=16)", "data(holdout=64)", "eval(every=10)", train=PROMPTS,
                    batch="gbs=128 micro=1", hardware="8 x h100-80gb")  # fmt: skip
    assert got["per_device_eval_batch_size"] * 8 % 16 == 0


@pytest.mark.parametrize(
    ("optimizer", "package"), [("adalomo", b"lomo-optim=="), ("galore_adamw(targets=all-linear)", b"galore-torch==")]
)
def test_an_optimizer_of_another_package_adds_its_requirement(optimizer: str, package: bytes) -> None:
    alone = {"hardware": "1 x h100-80gb", "strategy": "ddp", "batch": "gbs=16 micro=16 seq=512"}
    assert package in compiled(spec(f"optimizer {optimizer}", **alone))["requirements.txt"]
    assert package not in compiled(spec(**alone))["requirements.txt"]
