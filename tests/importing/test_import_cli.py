"""The command `xpc import` writes the right files and messages, and has the right exit status."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest
from import_support import HEAD, REPOSITORY

from xpc.compiler.cli import main

RECIPE = HEAD + 'learning_rate: 1.0e-5\nchat_template: "{{ x }}"\n'


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE)
    return tmp_path


def run(*arguments, capsys):
    status = main(["import", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_the_spec_goes_to_standard_output(here, capsys):
    status, out, err = run("r.yaml", "--hardware", "1 x a100-80gb", capsys=capsys)
    assert status == 0
    assert out.startswith("xpc 1\n")
    assert "lr = 1e-5" in out
    assert (here / "r.chat_template.jinja").read_text() == "{{ x }}"
    assert "wrote r.chat_template.jinja" in err


def test_a_spec_is_written_with_its_files_next_to_it(here, capsys):
    status, out, err = run("r.yaml", "-o", "sub/x.xp", capsys=capsys)
    assert (status, out) == (0, "")
    assert sorted(os.listdir(here / "sub")) == ["x.chat_template.jinja", "x.xp"]
    assert "wrote sub/x.xp" in err
    assert main(["check", "--format", "concise", "sub/x.xp"]) == 0


def test_nothing_is_replaced_unless_asked(here, capsys):
    (here / "x.xp").write_text("mine\n")
    status, _, err = run("r.yaml", "-o", "x.xp", capsys=capsys)
    assert status == 2
    assert "--force" in err
    assert (here / "x.xp").read_text() == "mine\n"
    assert not (here / "x.chat_template.jinja").exists()
    assert run("r.yaml", "-o", "x.xp", "--force", capsys=capsys)[0] == 0
    assert run("r.yaml", "-o", "x.xp", capsys=capsys)[0] == 0, "a file with the same content is not written again"


def test_an_error_writes_nothing(here, capsys):
    (here / "bad.yaml").write_text(HEAD + "learning_rte: 1\n")
    status, out, err = run("bad.yaml", "-o", "x.xp", capsys=capsys)
    assert (status, out) == (1, "")
    assert "bad.yaml:3: error: `learning_rte: 1`" in err
    assert not (here / "x.xp").exists()


def test_the_report_lists_every_key(here, capsys):
    status, out, _ = run("r.yaml", "--report", "json", "-o", "x.xp", capsys=capsys)
    found = json.loads(out)
    assert status == 0
    assert found["ok"] is True
    assert {(one["key"], one["line"], one["fate"]) for one in found["keys"]} == {
        ("model_name_or_path", 1, "mapped"), ("dataset_name", 2, "mapped"), ("learning_rate", 3, "mapped"),
        ("chat_template", 4, "mapped"),
    }  # fmt: skip
    assert found["defaults"]
    assert found["differences"] == {}
    assert found["spec"] == (here / "x.xp").read_text()
    assert set(found["keys"][0]) == {"key", "value", "file", "line", "fate", "to", "why"}
    _, _, err = run("r.yaml", "--report", "text", "--force", capsys=capsys)
    assert "r.yaml:3: learning_rate: mapped: optimizer.lr = 1e-5" in err


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ([], "takes a FILE"),
        (["r.yaml", "--command", "torchrun x.py --a 1"], "takes a FILE"),
        (["none.yaml"], "cannot be read"),
        (["r.yaml", "--hardware", "8 x gpu"], "not a GPU of the registry"),
        (["r.yaml", "--hardware", "eight"], "not a GPU of the registry"),
        (["r.yaml", "--hardware", "8 x h100-80bg"], "did you mean `h100-80gb`"),
        (["r.yaml", "--hardware", "0 x t4"], "a count and a GPU"),
        (["r.yaml", "--nodes", "0"], "above 0"),
        (["r.yaml", "--accelerate", "none.yaml"], "cannot be read"),
        (["tag.yaml"], "the tag"),
        (["list.yaml"], "not a mapping"),
        (["bytes.yaml"], "not UTF-8"),
        (["."], "not a bundle"),
    ],
    ids=lambda one: " ".join(one)[:30] if isinstance(one, list) else "",
)
def test_wrong_use_is_one_sentence_and_status_2(here, capsys, arguments, output):
    (here / "tag.yaml").write_text("a: !!python/object/apply:os.system [ls]\n")
    (here / "list.yaml").write_text("- a\n")
    (here / "bytes.yaml").write_bytes(b"a: \xff\n")
    status, out, err = run(*arguments, capsys=capsys)
    assert (status, out) == (2, "")
    assert output in err
    assert err.startswith("xpc: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(("typed", "stated"), [("8xh100-80gb", "8 x h100-80gb"), ("2x cpu", "2 x cpu"), ("cpu", "cpu")])
def test_hardware_as_it_is_typed(here, capsys, typed, stated):
    status, out, _ = run("r.yaml", "--hardware", typed, capsys=capsys)
    assert (status, f"hardware {stated}\n" in out) == (0, True)


def test_a_recipe_is_read_from_standard_input(here, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(RECIPE.encode()), encoding="utf-8"))
    status, out, _ = run("-", "--hardware", "8 x h100-80gb", capsys=capsys)
    assert status == 0
    assert "lr = 1e-5" in out


def test_yaml_is_read_as_it_was_meant(here, capsys):
    (here / "y.yaml").write_text(
        "base: &b {learning_rate: 2e-5}\nmodel_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: a/b\n<<: *b\n"
        "save_strategy: no\neval_strategy: no\nbf16: yes\n"
    )
    status, _, err = run("y.yaml", capsys=capsys)
    assert status == 1, "the diagnostic about `base` has no location"
    assert "`base" in err
    (here / "y.yaml").write_text((here / "y.yaml").read_text().replace("base: &b", "extra_: &b"))
    (here / "z.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: a/b\nlearning_rate: 2e-5\nsave_strategy: no\nbf16: yes\n"
    )
    status, out, _ = run("z.yaml", capsys=capsys)
    assert status == 0
    assert "lr = 2e-5" in out
    assert "every = never" in out
    assert "precision bf16" in out


@pytest.mark.slow
def test_a_bundle_gives_its_spec_back(here, capsys):
    specs = os.path.join(REPOSITORY, "specs")
    for name in ("mistral-7b-ultrachat-8xh100", "qwen2.5-3b-infinity-8xv100", "qwen2.5-1.5b-ioi-grpo-7xh100"):
        assert main(["compile", os.path.join(specs, f"{name}.xp"), "-o", f"{name}.bundle"]) == 0
        assert run(f"{name}.bundle", "-o", f"{name}.xp", capsys=capsys)[0] == 0
        assert main(["compile", f"{name}.xp", "-o", f"{name}.again"]) == 0
        for file in ("trainer_args.json", "accelerate.yaml", "deepspeed.json"):
            one, two = ((here / f"{name}.{end}" / file).read_text() for end in ("bundle", "again"))
            assert two == one.replace("rewards/judged.py", "files/judged.py"), (name, file)
        text = (here / f"{name}.xp").read_text()
        assert "default" not in text
        assert "nccl_timeout" not in text, "values that the compiler filled in are not values of the spec"


def test_folders_and_evaluation_sets_of_a_bundle_come_along(here, capsys):
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    row = json.dumps({"messages": talk}) + "\n"
    for name in ("one/rows/a.jsonl", "one/rows/b.jsonl", "two/rows/a.jsonl", "held.jsonl"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(row.replace('"a"', f'"{name}"') * 9)
    (here / "s.xp").write_text(
        'xpc 1\n\ntrain qwen2.5-3b on both for 1 epochs\n\ndata both {\n  "one/rows"\n  "two/rows"\n}\n\n'
        'batch {\n  gbs = 8\n  micro = 1\n}\n\neval {\n  data = "held.jsonl"\n}\n'
    )
    assert main(["compile", "s.xp", "-o", "s.bundle"]) == 0
    assert run("s.bundle", "-o", "back/t.xp", capsys=capsys)[0] == 0
    assert main(["compile", "back/t.xp", "-o", "t.bundle"]) == 0
    one, two = ({each.name: each.read_bytes() for each in (here / f"{end}.bundle/data").iterdir()} for end in "st")
    assert len(one) == 4
    assert two == one


def test_local_rows_of_a_bundle_come_along(here, capsys):
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    (here / "rows.jsonl").write_text(json.dumps({"messages": talk}) + "\n")
    (here / "s.xp").write_text(
        'xpc 1\n\ntrain qwen2.5-3b on "rows.jsonl" for 1 epochs\n\nbatch {\n  gbs = 8\n  micro = 1\n}\n'
    )
    assert main(["compile", "s.xp"]) == 0
    assert run("s.bundle", "-o", "back/s.xp", capsys=capsys)[0] == 0
    assert (here / "back" / "data" / "rows.jsonl").read_text() == (here / "rows.jsonl").read_text()
    assert '"data/rows.jsonl"' in (here / "back" / "s.xp").read_text()
    assert main(["check", "--format", "concise", "back/s.xp"]) == 0


def test_a_task_of_a_bundle_comes_along_with_its_rows(here, capsys):
    os.makedirs(here / "tasks" / "rows")
    (here / "tasks" / "mine.yaml").write_text("task: mine\ndataset_path: json\ndata_files: {test: rows/a.jsonl}\n")
    (here / "tasks" / "rows" / "a.jsonl").write_text("{}\n")
    (here / "s.xp").write_text(
        'xpc 1\n\ntrain qwen2.5-3b on infinity-instruct\n\neval {\n  tasks = ["tasks/mine.yaml", gsm8k]\n}\n'
    )
    assert main(["compile", "s.xp"]) == 0
    assert run("s.bundle", "-o", "back/s.xp", capsys=capsys)[0] == 0
    assert main(["compile", "back/s.xp", "-o", "again.bundle"]) == 0
    for file in ("evaluation.json", "evaluate.sh", "requirements-eval.txt"):
        assert (here / "again.bundle" / file).read_bytes() == (here / "s.bundle" / file).read_bytes()


@pytest.mark.slow
def test_importing_loads_no_training_stack_and_checking_no_importer(here):
    script = "import sys; from xpc.compiler.cli import main; main(sys.argv[1:]); print(*sys.modules)"
    (here / "s.xp").write_text("xpc 1\n\ntrain qwen2.5-3b on infinity-instruct with zero2 gbs=528 bf16 liger\n")

    def modules(*arguments):
        done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True,
                              env={**os.environ, "XPC_CACHE": "off"})  # fmt: skip
        return set(done.stdout.split())

    after = modules("import", "r.yaml", "-o", "x.xp")
    assert "yaml" in after
    assert not after & {"torch", "transformers", "trl", "datasets", "accelerate", "numpy"}
    checked = modules("check", "s.xp")
    assert "yaml" not in checked
    assert not [name for name in checked if name.startswith("xpc.compiler.importing")]


def test_missing_pyyaml_is_reported_with_what_to_install(here, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    status, _, err = run("r.yaml", capsys=capsys)
    assert status == 2
    assert "[import]'" in err
    assert "pip install -e" in err


def test_only_the_command_line_and_xpc_diff_know_the_importers():
    for folder, _, names in os.walk(os.path.join(REPOSITORY, "compiler")):
        for name in names:
            if name.endswith(".py") and f"{os.sep}importing" not in folder and name not in ("cli.py", "source_file.py"):
                with open(os.path.join(folder, name), encoding="utf-8") as handle:
                    assert "xpc.compiler.importing" not in handle.read(), name


def test_a_model_that_reads_images_is_refused_because_other_tools_train_more_of_it(here, capsys):
    turns = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "A cat."}]
    (here / "rows.jsonl").write_text(json.dumps({"messages": turns, "images": ["cat.png"]}))
    (here / "v.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-VL-3B-Instruct\ndataset_name: rows.jsonl\noutput_dir: out\n"
        "max_length: 2048\nmax_steps: 2\n"
    )
    found, out, err = run("v.yaml", capsys=capsys)
    assert found == 1
    assert out == ""
    assert "`Qwen/Qwen2.5-VL-3B-Instruct` reads images, and xpc does not import configurations with images" in err


@pytest.mark.parametrize(("option", "status"), [((), 1), (("--partial",), 3)])
def test_a_spec_that_check_refuses_is_written_and_reported(here, capsys, option, status):
    (here / "n.yaml").write_text(RECIPE + "dataset_name: none.jsonl\n")
    arguments = ("n.yaml", "--hardware", "1 x a100-80gb", *option)
    found, _, err = run(*arguments, "-o", "n.xp", capsys=capsys)
    assert found == status
    assert "`xpc check` finds 1 error in the spec:" in err
    assert "XP123" in err
    assert (here / "n.xp").exists()
    found, out, _ = run(*arguments, "--report", "json", capsys=capsys)
    report = json.loads(out)
    assert found == status
    assert report["ok"] is False
    assert [one["code"] for one in report["check"]] == ["XP123"]


def test_a_spec_that_check_accepts_is_reported_as_such(here, capsys):
    status, _, err = run("r.yaml", "--hardware", "1 x a100-80gb", "-o", "r.xp", capsys=capsys)
    assert status == 0
    assert "wrote r.xp, which passes `xpc check`" in err


def test_number_of_warnings_is_reported(here, capsys):
    turns = '{"messages": [{"role": "user", "content": "%d?"}, {"role": "assistant", "content": "%d!"}]}\n'
    (here / "rows.jsonl").write_text("".join(turns % (i, i) for i in range(100)))
    (here / "a.yml").write_text(
        "base_model: NousResearch/Llama-3.2-1B\nchat_template: llama3\nmicro_batch_size: 1\nlearning_rate: 1e-4\n"
        "adapter: lora\nmax_steps: 100\ndatasets:\n  - {path: rows.jsonl, type: chat_template}\n"
    )
    status, _, err = run("a.yml", "--hardware", "1 x a100-80gb", "-o", "a.xp", capsys=capsys)
    assert status == 0
    assert err.endswith("wrote a.xp, which passes `xpc check` with 1 warning\n")
    assert main(["check", "--format", "concise", "a.xp"]) == 0
    assert "warning XP513" in capsys.readouterr().out


def test_accelerates_file_and_deepspeeds_file_of_a_python_script_are_read(here, capsys):
    (here / "train.py").write_text(
        "from trl import SFTConfig, SFTTrainer\n"
        "SFTTrainer('Qwen/Qwen2.5-0.5B', train_dataset='trl-lib/Capybara', args=SFTConfig('out', bf16=True)).train()\n"
    )
    (here / "zero3.yaml").write_text(
        "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\nnum_machines: 1\nnum_processes: 4\n"
    )
    (here / "zero2.json").write_text('{"zero_optimization": {"stage": 2}}')
    _, out, _ = run("train.py", "--accelerate", "zero3.yaml", "--partial", capsys=capsys)
    assert "hardware 4 x h100-80gb" in out
    assert "strategy zero3" in out
    _, out, _ = run("train.py", "--deepspeed", "zero2.json", "--partial", capsys=capsys)
    assert "hardware 1 x h100-80gb" in out
    assert "strategy zero2" in out


def test_data_that_is_a_file_is_quoted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text("model_name_or_path: Qwen/Qwen2.5-3B\nlearning_rate: 1e-5\n")
    (tmp_path / "rows").mkdir()
    for name, written in (("data/rows.jsonl", '"data/rows.jsonl"'), ("rows", '"rows"'), ("org/rows", "org/rows")):
        main(["import", "r.yaml", "--hardware", "8 x h100-80gb", "--data", name])
        assert f"train Qwen/Qwen2.5-3B on {written}" in capsys.readouterr().out


def test_a_refused_spec_has_the_reason_of_its_target(here, capsys):
    body = "model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct\ndataset_name: trl-lib/Capybara\ntorch_dtype: bfloat16\n"
    (here / "answers.yaml").write_text(
        body + "output_dir: out\nassistant_only_loss: true\noverwrite_output_dir: true\n"
    )
    status, _, err = run("answers.yaml", "-o", "x.xp", capsys=capsys)
    assert status == 1
    assert "wrote x.xp" in err
    assert "XP506" in err
    assert "trl-0.24 adds no marks" in err
    assert "the target is trl-0.24, because the file's keys fit trl 0.19 to 0.26; `--target` chooses another" in err
    status, _, err = run("answers.yaml", "-o", "y.xp", "--target", "trl-0.24", capsys=capsys)
    assert (status, "the target is" in err) == (1, False)
    assert run("answers.yaml", "-o", "z.xp", "--target", "trl-1.16", capsys=capsys)[0] == 0
