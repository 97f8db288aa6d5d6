"""Completions are sampled with the values that the bundle states, even if the model's generation_config.json has other
values.
"""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from forks import shared
from interpreters import OTHERS
from tiers import nightly_but

from xpc.compiler.stacks import STACKS

pytestmark = pytest.mark.slow
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sampled_as_stated.py")


@pytest.mark.parametrize("stack", nightly_but(STACKS, lambda stack: stack != OTHERS[-1]))
def test_a_models_own_values_do_not_replace_what_is_stated(stack, tmp_path):
    command = [shared(stack).python, SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["after"] == {"temperature": 1.0, "top_p": 1.0, "repetition_penalty": 1.0}
    assert found["same_file"], "the saved model's file must not change"


def test_without_the_runtime_an_older_stack_samples_otherwise(tmp_path):
    """Without the runtime, trl 0.18 samples with the temperature of the model's own files, not with the stated
    temperature. If this test fails, the defect is gone, and the correction in the runtime can be removed.
    """
    command = [shared("trl-0.18").python, SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.strip().splitlines()[-1])["before"]["temperature"] == 0.6
