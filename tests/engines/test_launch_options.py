"""If a spec passes an sbatch option or a variable that xpc writes itself, the help of the error names the setting to
use instead: for `--nodes=4`, it names `nodes 4`.
"""

from __future__ import annotations

import pytest
from case_support import spec
from compile_support import checked, errors, only


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--nodes=4", "`nodes 4`"),
        ("--gres=gpu:4", "`hardware 4 x h100-80gb`"),
        ("--gpus-per-node=h100:2", "`hardware 2 x h100-80gb`"),
        ("--gpus-per-node=all", "`hardware` asks"),
        ("--partition=gpu", "`partition = gpu`"),
        ("--array=0-7", "`sweep`"),
        ("--export=NONE", "`env` lists"),
        ("--ntasks-per-node=8", "the job file"),
        ("-N2", "--mail-type=END"),
    ],
)
def test_an_option_of_sbatch_gets_its_setting(option: str, expected: str) -> None:
    assert expected in (only(checked(spec(f'launch slurm(extra_args=["{option}"])')), "XP920").help or "")


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("WORLD_SIZE=8", "`hardware` and `nodes`"),
        ("ACCELERATE_MIXED_PRECISION=fp16", "`precision`"),
        ("MASTER_ADDR=me", "the launch sets it"),
        ("PATH=/opt/bin", "`setup = file("),
        ("NCCL_DEBUG", "NCCL_DEBUG=INFO"),
    ],
)
def test_a_variable_of_the_launch_gets_its_setting(variable: str, expected: str) -> None:
    found = checked(spec(f"launch local(env=['{variable}'])".replace("'", '"')))
    assert errors(found) == ["XP910"]
    assert expected in (only(found, "XP910").help or "")
