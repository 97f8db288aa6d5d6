"""Read published recipes from a folder with the originals, and write copies of them next to this file.

    python tests/recipes/copy_published.py ../shared/published

A copy has the names and values of a recipe. Of a chat template, a copy has only the SHA-256, not the text. To test our
own template against a published template, `renderings.json` has digests of conversations that the published template
has rendered (test_templates.py).
"""

from __future__ import annotations

import json
import os
import sys
from hashlib import sha256
from typing import Any

import yaml
from template_support import cases, render

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = {
    "open-r1": ("https://github.com/huggingface/open-r1", "1416fa0", "recipes"),
    "alignment-handbook": ("https://github.com/huggingface/alignment-handbook", "925acdf", "recipes"),
    "fastchat": ("https://github.com/lm-sys/FastChat", "0e6d3e4", ""),
}
"""Maps each folder to the repository, the commit, and the folder of recipes in the repository."""


TEMPLATES = {
    "zephyr": ("alignment-handbook/recipes/zephyr-7b-beta/sft/config_full.yaml", False, False),
    "zephyr-gemma": ("alignment-handbook/recipes/zephyr-7b-gemma/sft/config_full.yaml", False, False),
    "smollm2": ("alignment-handbook/recipes/smollm2/sft/config.yaml", False, False),
    "chatml": ("alignment-handbook/recipes/smollm3/sft/mid.yaml", False, False),
    "smollm3": ("alignment-handbook/recipes/smollm3/sft/sft.yaml", True, False),
    "open-r1": ("open-r1/recipes/OpenR1-Distill-7B/sft/config_distill.yaml", True, False),
    "deepseek-r1-think": ("open-r1/recipes/DeepSeek-R1-Distill-Qwen-1.5B/grpo/config_demo.yaml", False, True),
}
"""Maps each of our templates to the file with the published template, to whether the published template supports tools,
and to whether it accepts calls without content.
"""


def flags(words: list[str]) -> dict[str, str]:
    """The options of a command line as a mapping from name to value. `--lr 1` and `--lr=1` give the same entry. The
    program itself is left out.
    """
    out: dict[str, str] = {}
    for index, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            out[name] = value if equals else words[index + 1]
    return out


def facts(value: Any) -> Any:
    """A copy of a value in which each chat template is replaced by the template's digest."""
    if isinstance(value, dict):
        kept = {key: facts(one) for key, one in value.items()}
        if isinstance(value.get("chat_template"), str):
            kept["chat_template"] = "sha256:" + sha256(value["chat_template"].encode()).hexdigest()
        return kept
    return [facts(one) for one in value] if isinstance(value, list) else value


def copied(folder: str, family: str) -> dict[str, Any]:
    """The published recipes of a repository (`family`, such as "open-r1"): where they come from, and a mapping from
    each recipe's path to the recipe's values.
    """
    repository, commit, _ = SOURCES[family]
    out: dict[str, Any] = {"source": repository, "commit": commit, "files": {}}
    for location, _, names in sorted(os.walk(os.path.join(folder, family))):
        for name in sorted(names):
            path = os.path.join(location, name)
            short = os.path.relpath(path, os.path.join(folder, family)).replace(os.sep, "/")
            with open(path, encoding="utf-8") as handle:
                found = yaml.safe_load(handle)
            if name == "commands.json":
                out["files"] |= {command: flags(words) for command, words in found.items()}
            else:
                out["files"][short] = facts(found)
    return out


def text(table: dict[str, Any]) -> str:
    """Format a recipe as JSON with one key per line."""
    lines = [f"{json.dumps(key)}: {json.dumps(table[key])}" for key in table if key != "files"]
    files = []
    for name, keys in table["files"].items():
        inner = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in keys.items())
        files.append(f" {json.dumps(name)}: {{\n{inner}\n }}")
    return "{\n" + ",\n".join([*lines, '"files": {\n' + ",\n".join(files) + "\n}"]) + "\n}\n"


def template(folder: str, name: str) -> str:
    """Read the published text of a template."""
    with open(os.path.join(folder, TEMPLATES[name][0]), encoding="utf-8") as handle:
        return str(yaml.safe_load(handle)["chat_template"])


def renderings(folder: str) -> dict[str, Any]:
    """Map each published template to its digest and to its renderings of all test conversations. A rendering has the
    digest and the length of the text, and the marked spans.
    """
    out: dict[str, Any] = {}
    for name, (_, tools, calls) in TEMPLATES.items():
        published = template(folder, name)
        made = {case: digested(render(published, turns, **more)) for case, turns, more in cases(tools, calls)}
        out[name] = {"published": "sha256:" + sha256(published.encode()).hexdigest(), "renders": made}
    return out


def digested(made: dict[str, Any]) -> list[Any]:
    """Shorten a rendered conversation to the digest and the length of its text, followed by the spans that have a
    loss.
    """
    return [sha256(made["text"].encode()).hexdigest()[:16], len(made["text"]), *made["spans"]]


def main(folder: str) -> None:
    """Write published/NAME.json for each repository in `SOURCES`, and renderings.json."""
    shown = json.dumps(renderings(folder), ensure_ascii=False, separators=(",", ": ")).replace('],"', '],\n"')
    with open(os.path.join(HERE, "renderings.json"), "w", encoding="utf-8", newline="\n") as out:
        out.write(shown.replace('"renders": {', '"renders": {\n').replace('}},"', '}},\n"') + "\n")
    for family in SOURCES:
        with open(os.path.join(HERE, "published", family + ".json"), "w", encoding="utf-8", newline="\n") as out:
            out.write(text(copied(folder, family)))


if __name__ == "__main__":
    main(sys.argv[1])
