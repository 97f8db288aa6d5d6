"""If vLLM runs inside the training process, each stack's trl creates vLLM in another way. On every stack, vLLM loads
the commit of the model that the bundle pins.
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from xpc.runtime.features.method import sampling


def bundle(**model):
    loading = {"revision": model["revision"], "trust_remote_code": False}
    return SimpleNamespace(arguments={"use_vllm": True}, model=model, loading=lambda: loading)


def modules(own):
    """Return three things: the module of a trainer, the module in which the trainer looks up vLLM's class, and the list
    of the arguments with which this class is called. Before trl 1.16, the two modules are the same.
    """
    made = []
    trainer, other = ModuleType("trainer"), ModuleType("generation_of_a_test")
    location = trainer if own else other
    location.LLM = lambda **given: made.append(given)
    if not own:
        trainer.VLLMGeneration = type("VLLMGeneration", (), {"__module__": other.__name__})
        sys.modules[other.__name__] = other
    return trainer, location, made


@pytest.mark.parametrize("own", [True, False], ids=["in-the-trainer", "in-a-module-of-its-own"])
@pytest.mark.parametrize("id", ["me/model", None])
def test_the_commit_reaches_vllm(own, id):
    trainer, location, made = modules(own)
    kept = location.LLM
    with sampling.vllm_at_commit(bundle(id=id, path=None, revision="1" * 40), trainer):
        location.LLM(model="me/model", seed=3)
    commit = {} if id is None else {"revision": "1" * 40, "tokenizer_revision": "1" * 40}
    assert made == [{"model": "me/model", "seed": 3, **commit}]
    assert location.LLM is kept


def test_without_vllm_nothing_is_replaced():
    trainer = ModuleType("trainer")
    with sampling.vllm_at_commit(bundle(id="me/model", path=None, revision="1" * 40), trainer):
        assert not hasattr(trainer, "LLM")
