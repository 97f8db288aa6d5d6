"""Find the hardware of a spec: a number of registered GPUs, or of CPU processes."""

from __future__ import annotations

import re

from xpc.compiler import registry
from xpc.compiler.language.codes import Problems
from xpc.compiler.language.items import DEFAULT
from xpc.compiler.language.load import MergedSpec
from xpc.compiler.language.schema import MAX_PROCESSES
from xpc.compiler.language.setting import Path
from xpc.compiler.spec.resources import Hardware, Model
from xpc.compiler.spec.values import Origin, Value
from xpc.grammar.diagnostic import Label
from xpc.grammar.tree import Count, Number, Ref, String

DEFAULT_GPUS, DEFAULT_GPU = 8, "h100-80gb"


def find_hardware(loaded: MergedSpec, values: dict[Path, Value], model: Model, problems: Problems) -> Hardware:
    """Find the GPUs or the CPU processes of a run. If the spec states no hardware, a default is used, and a note says
    so.
    """
    nodes_value = values.get("nodes")
    nodes = nodes_value.value if nodes_value is not None and isinstance(nodes_value.value, int) else 1
    value = values.pop("hardware", None)
    if value is None:
        if "hardware" not in loaded.items:
            message = f"the spec states no hardware, so {DEFAULT_GPUS} x {DEFAULT_GPU} is assumed"
            help = f"`hardware {DEFAULT_GPUS} x {DEFAULT_GPU}` states this choice"
            problems.report("XP190", message, model.label, help=help)
        values["hardware"] = Value(f"{DEFAULT_GPUS} x {DEFAULT_GPU}", Origin(DEFAULT))
        return Hardware(registry.find_gpu(DEFAULT_GPU), DEFAULT_GPUS, nodes)
    node, label = value.value, value.origin.label
    count, name = 1, node
    if isinstance(node, Count):
        count, name = _count(node.n, label, problems), node.what
    if not (isinstance(name, Ref) and name.is_name):
        number = isinstance(name, Number) and isinstance(name.value, int) and name.value > 0 and not name.unit
        many = name.text if isinstance(name, Number) and number else "N"
        help = f"write `hardware {many} x GPU`, with the name of your GPU (`xpc list gpus` prints the names), or `cpu`"
        follows = isinstance(name, Ref) and (name.config or "").isdecimal()  # the number follows the GPU: `h100-80gb:8`
        if follows or (number and len(many) > 2):  # `hardware 3090`
            # imported only here, because only a wrong spec needs it
            from xpc.compiler.suggest.registry_names import hardware_help

            help = hardware_help(f"{name.name}:{name.config}" if isinstance(name, Ref) else many)
        elif isinstance(name, String) and re.fullmatch(r"\d+ ?x ?[\w.-]+|cpu", name.value):
            help = f"write `hardware {re.sub(' ?x ?', ' x ', name.value, count=1)}`, without quotes"
        problems.report("XP104", "`hardware` takes a count and a GPU, or cpu", label, help=help)
        return Hardware(None, 1, nodes)
    if name.name == "cpu":
        values["hardware"] = Value(f"{count} x cpu", value.origin)
        return Hardware(None, count, nodes)
    gpu = registry.find_gpu(name.name)
    if gpu is None:
        # imported only here, because only a wrong spec needs it
        from xpc.compiler.suggest.registry_names import unknown_gpu

        problems.append(unknown_gpu(name, label))
        gpu = registry.find_gpu(DEFAULT_GPU)
    assert gpu is not None
    values["hardware"] = Value(f"{count} x {gpu.name}", value.origin)
    return Hardware(gpu, count, nodes)


def _count(node: Number, label: Label | None, problems: Problems) -> int:
    if node.unit or not isinstance(node.value, int) or not 1 <= node.value <= MAX_PROCESSES:
        location = None if label is None else Label(label.source, node.span)
        message = "the number of processes is out of range"
        problems.report("XP107", message, location, help=f"write a whole number from 1 to {MAX_PROCESSES}")
        return 1
    return node.value
