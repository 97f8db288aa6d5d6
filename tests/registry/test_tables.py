"""The committed tables of the registry are up to date, complete and unambiguous; numbers are in range, and loading is
quick.
"""

import subprocess
import sys

import pytest

from xpc.compiler import registry
from xpc.compiler.registry import build
from xpc.compiler.registry.types import IMAGE_FAMILIES

SHAPES = {
    "messages": (1, 1),
    "conversations": (1, 1),
    "prompt_completion": (2, 2),
    "text": (1, 1),
    "preference": (2, 3),
    "prompt": (1, 1),
}


def test_tables_json_is_what_the_toml_files_say():
    with open(f"{build.HERE}/tables.json", encoding="utf-8") as file:
        assert file.read() == build.tables(), "run `python -m xpc.compiler.registry.build`"


def test_the_registry_is_as_large_as_it_claims():
    assert len(registry.model_names()) >= 70
    assert len(registry.gpu_names()) >= 28
    assert len(registry.dataset_names()) >= 45
    for names in (registry.model_names(), registry.gpu_names(), registry.dataset_names(), registry.families()):
        assert list(names) == sorted(set(names))


def test_a_model_is_found_by_alias_in_any_case_and_by_its_exact_hub_id():
    facts = registry.find_model("qwen2.5-3b")
    assert facts is not None
    assert facts.id == "Qwen/Qwen2.5-3B"
    assert registry.find_model("Qwen2.5-3B") == facts
    assert registry.find_model("Qwen/Qwen2.5-3B") == facts
    assert registry.find_model("qwen/qwen2.5-3b") is None
    assert registry.find_model("qwen2.5-3") is None


def test_the_seed_recipe_names_resolve():
    data = registry.find_dataset("infinity-instruct")
    assert data is not None
    assert (data.id, data.config, data.split, data.rows) == ("BAAI/Infinity-Instruct", "0625", "train", 659808)
    assert (data.shape, data.columns) == ("conversations", ("conversations",))
    gpu = registry.find_gpu("V100-32GB")
    assert gpu is not None
    assert (gpu.memory_gib, gpu.capability, gpu.bf16_tflops, gpu.fp32_tflops) == (31.7, (7, 0), None, 15.7)


def test_underscores_of_the_hub_are_dashes_of_an_alias():
    assert registry.find_dataset("ultrachat_200k") == registry.find_dataset("ultrachat-200k") is not None


def test_every_hub_id_and_alias_is_unique_and_leads_back():
    for names, find in (
        (registry.model_names(), registry.find_model),
        (registry.dataset_names(), registry.find_dataset),
    ):
        found = [find(name) for name in names]
        assert None not in found
        ids = [one.id for one in found]
        assert len(set(ids)) == len(ids)
        assert all(id.count("/") == 1 for id in ids)
        assert [find(id) for id in ids] == found


@pytest.mark.parametrize(
    ("file", "alias", "copied", "why"),
    [
        ("datasets.toml", "alpaca-again", "alpaca", "share a name"),
        ("gpus.toml", "H100_80GB", "h100-80gb", "lower case"),
    ],
)
def test_the_tables_refuse_a_second_name_and_an_alias_that_no_lookup_would_find(monkeypatch, file, alias, copied, why):
    read, changed = build.read, build.read(file)
    changed[alias] = changed[copied]
    monkeypatch.setattr(build, "read", lambda name: changed if name == file else read(name))
    with pytest.raises(ValueError, match=why):
        build.tables()


def test_gpu_numbers_are_in_range_and_bf16_starts_with_ampere():
    for name in registry.gpu_names():
        gpu = registry.find_gpu(name)
        assert gpu is not None
        assert (gpu.bf16_tflops is not None) == (gpu.capability >= (8, 0)), name
        assert gpu.bf16_tflops is None or gpu.bf16_tflops == gpu.fp16_tflops, name
        assert 8 < gpu.memory_gib < 300, name
        assert 5 < gpu.fp32_tflops < gpu.fp16_tflops < 3000, name
        assert 250 < gpu.bandwidth_gbs <= 8000, name
        assert gpu.device_names, name
        size = [part for part in name.split("-") if part.endswith("gb")]
        if size:
            assert 0.9 < gpu.memory_gib / int(size[0][:-2]) < 1, name


def test_a_card_that_could_be_taken_for_another_differs_in_memory_or_is_its_variant():
    """The name of one GPU may contain the name of another (A100 contains A10). Then the two GPUs must differ in memory
    by more than 10 %, so that the memory tells them apart, or be variants of the same GPU.
    """
    gpus = [registry.find_gpu(name) for name in registry.gpu_names()]
    variants = {
        ("a10", "a10g"), ("l40", "l40s"), ("p100-16gb", "p100-pcie-16gb"), ("v100-16gb", "v100-pcie-16gb"),
        ("v100-32gb", "v100-pcie-32gb"), ("v100-32gb", "v100s-pcie-32gb"), ("a100-40gb", "a100-pcie-40gb"),
        ("a100-80gb", "a100-pcie-80gb"), ("h100-80gb", "h100-pcie-80gb"),
    }  # fmt: skip
    for gpu in gpus:
        for other in gpus:
            hit = any(mine in theirs for mine in gpu.device_names for theirs in other.device_names)
            same = abs(gpu.memory_gib - other.memory_gib) < 0.1 * other.memory_gib
            if gpu != other and hit and same:
                pair = (gpu.name, other.name)
                assert pair in variants or pair[::-1] in variants, pair


def test_datasets_have_the_columns_of_their_shape():
    for name in registry.dataset_names():
        data = registry.find_dataset(name)
        assert data is not None
        low, high = SHAPES[data.shape]
        assert low <= len(data.columns) <= high, name
        assert data.rows is None or data.rows > 0, name
        assert data.split, name
        assert data.context is None or data.context not in data.columns, name


def test_every_model_has_a_family():
    for name in registry.model_names():
        facts = registry.find_model(name)
        assert facts is not None
        assert facts.model_type in (*registry.families(), *IMAGE_FAMILIES), name


def test_model_numbers_are_consistent():
    for name in registry.model_names():
        m = registry.find_model(name)
        assert m is not None
        assert m.heads % m.kv_heads == 0, name
        assert m.context >= 1024, name
        assert m.dtype in ("bfloat16", "float16", "float32"), name
        assert m.layers * m.layer_params < m.params < 1e12, name
        assert (m.experts > 0) == (m.active_params is not None), name
        assert m.active_params is None or m.active_params < m.params, name


def test_importing_the_registry_loads_nothing_and_a_lookup_no_toml():
    code = (
        "from xpc.compiler import registry\n"
        "from xpc.grammar.package_data import read_json\n"
        "assert not read_json.cache_info().currsize\n"
        "registry.find_model('qwen2.5-3b'), registry.model_names(), registry.dataset_names(), registry.gpu_names()\n"
        "assert read_json.cache_info().currsize\n"
        "import sys; assert 'tomllib' not in sys.modules\n"
        "assert 'xpc.compiler.registry.architecture' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
