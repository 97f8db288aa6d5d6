"""Lower a checked spec: write the files of its bundle. Each file of a bundle has its own module here, with pure
functions.
"""

from __future__ import annotations

import json

from xpc.compiler.engines import environment
from xpc.compiler.engines.engine import engine
from xpc.compiler.engines.pin import LIST, listed, pin
from xpc.compiler.files.bundle import sealed
from xpc.compiler.lower import model_card
from xpc.compiler.lower.accelerate import accelerate, yaml
from xpc.compiler.lower.deepspeed import deepspeed
from xpc.compiler.lower.launch import launch
from xpc.compiler.lower.manifest import flash_requirement, manifest, requirements
from xpc.compiler.lower.payload import payload
from xpc.compiler.lower.readme import readme
from xpc.compiler.lower.specfile import specfile
from xpc.compiler.lower.trainer_files import trainer_files
from xpc.compiler.spec.checked import CheckedSpec

YAML_COMMENT = """\
`accelerate launch` reads this file. The runtime stops if the started processes differ from trainer_args.json."""
CPU_COMMENT = """
MULTI_GPU with use_cpu is how accelerate starts several processes on one CPU machine; the run reports MULTI_CPU."""


def lower(spec: CheckedSpec) -> dict[str, bytes]:
    """Every file of the bundle, by name; `bundle.toml` is the last. The same spec and the same input files always give
    the same bytes.
    """
    files = emitted(spec)
    files["bundle.toml"] = sealed(manifest(spec, files).encode("utf-8", "surrogatepass"))
    return files


def emitted(spec: CheckedSpec) -> dict[str, bytes]:
    """Every file of the bundle, by name, except `bundle.toml`. `bundle.toml` is made later, because it contains the
    digests of all these files.
    """
    plan = payload(spec)
    stated = plan["arguments"]
    started_by = engine(spec)
    assert isinstance(stated, dict)
    several_on_cpu = spec.on_cpu and spec.hardware.world > 1 and not spec.zero_stage
    texts = {
        "README.md": readme(spec, stated, started_by.readme(spec)),
        "accelerate.yaml": yaml(accelerate(spec), YAML_COMMENT + (CPU_COMMENT if several_on_cpu else "")),
        "launch.sh": launch(spec),
        "requirements.txt": requirements(spec),
        "spec.xp": specfile(spec),
        "trainer_args.json": _json(plan),
    }
    decisive = {name: texts[name] for name in ("spec.xp", "trainer_args.json")}
    texts[model_card.FILE] = model_card.model_card(spec, decisive)
    if spec.flag("save.merge"):
        texts[model_card.MERGED] = model_card.model_card(spec, decisive, merged=True)
    flash = flash_requirement(spec)
    if flash is not None:
        texts["requirements-flash.txt"] = flash + "\n"
    if spec.get("eval.tasks") is not None:
        from xpc.compiler.lower import evaluate  # imported here, because few specs name evaluation tasks

        texts["evaluate.sh"] = evaluate.script(spec)
        texts["evaluation.json"] = _json(evaluate.evaluation(spec))
        texts["requirements-eval.txt"] = evaluate.requirement(spec) + "\n"
    if spec.zero_stage:
        texts["deepspeed.json"] = _json(deepspeed(spec))
    if environment.stated(spec):
        texts[environment.FILE] = environment.environment(spec)
    files = {name: text.encode("utf-8", "surrogatepass") for name, text in texts.items()}
    files.update(spec.bundled)
    files.update(trainer_files(plan, "evaluation.json" in texts))
    files[LIST] = listed(files)
    for name, text in started_by.files(spec, pin(files[LIST])).items():
        files[name] = text.encode("utf-8", "surrogatepass")
    return files


def _json(table: object) -> str:
    return json.dumps(table, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
