"""Read YAML as entries with line numbers. PyYAML only parses the document tree, so no tag creates a Python object.

Pitfalls of YAML 1.1: `no`, `off` and `yes` are bools, but their entries also have the text; `2e-5` is a string, which
`entries.number` reads as a number; `1:30` and dates stay strings; if a key is repeated, its last value counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xpc.compiler.importing.text.entries import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_SIZE,
    NUMBER,
    Entry,
    Unreadable,
    checked,
    listed,
)
from xpc.grammar.record import evolve, field, mutable

if TYPE_CHECKING:
    import yaml

CORE = "tag:yaml.org,2002:"


def read(text: str, file: str) -> dict[str, Entry]:
    """The keys of a YAML document. Raises Unreadable unless the document is one mapping of plain values."""
    try:
        import yaml
    except ImportError as error:
        from xpc.compiler.files.package import install_command

        raise Unreadable(f"reading YAML needs PyYAML: {install_command('import')}") from error
    if len(text) > MAX_SIZE:
        raise Unreadable(f"it is longer than {MAX_SIZE} characters")
    try:
        documents = [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "it cannot be parsed"
        raise Unreadable(f"it is not YAML: {problem}", mark.line + 1 if mark else 0) from error
    except yaml.YAMLError as error:
        raise Unreadable(f"it is not YAML: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise Unreadable(f"it is nested more than {MAX_DEPTH} levels deep") from error
    if len(documents) != 1:
        raise Unreadable("it is empty" if not documents else f"it has {len(documents)} documents instead of one")
    root = documents[0]
    if not isinstance(root, yaml.MappingNode):
        raise Unreadable("it is not a mapping of keys to values", root.start_mark.line + 1)
    value = _Builder(file).build("", root, 0).value
    assert isinstance(value, dict)
    return value


@mutable
class _Builder:
    file: str
    count: int = field(default=0)

    def build(self, key: str, node: yaml.Node, depth: int, line: int | None = None) -> Entry:
        import yaml

        here = node.start_mark.line + 1
        self.count += 1
        if depth > MAX_DEPTH:
            raise Unreadable(f"it is nested more than {MAX_DEPTH} levels deep", here)
        if self.count > MAX_NODES:
            raise Unreadable(f"its aliases expand to more than {MAX_NODES} values", here)
        at = line or here
        if isinstance(node, yaml.MappingNode):
            self.known(node, "map")
            return Entry(key, self.mapping(node, depth, f"{key}." if key else ""), self.file, at)
        if isinstance(node, yaml.SequenceNode):
            self.known(node, "seq")
            items = [self.build(f"{key}[{n}]", one, depth + 1) for n, one in enumerate(node.value)]
            return Entry(key, listed(items), self.file, at)
        assert isinstance(node, yaml.ScalarNode)
        value, typed = self.scalar(node)
        return Entry(key, checked(value, here), self.file, at, typed)

    def mapping(self, node: yaml.MappingNode, depth: int, prefix: str) -> dict[str, Entry]:
        import yaml

        out: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        for name, value in node.value:
            line = name.start_mark.line + 1
            if name.tag == CORE + "merge":
                for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if not isinstance(part, yaml.MappingNode):
                        raise Unreadable("`<<` merges mappings only", line)
                    for key, one in self.build(prefix.rstrip("."), part, depth + 1).mapping.items():
                        merged.setdefault(key, one)
                continue
            if not isinstance(name, yaml.ScalarNode):
                raise Unreadable("a key must be a plain name", line)
            key = name.value
            one = self.build(prefix + key, value, depth + 1, line)
            old = out.get(key)
            again = old is not None and old.value != one.value and not (old.off and one.off)
            out[key] = evolve(one, earlier=old.line) if old is not None and again else one
        return {**{key: one for key, one in merged.items() if key not in out}, **out}

    def known(self, node: yaml.Node, kind: str) -> None:
        if node.tag != CORE + kind:
            raise Unreadable(
                f"the tag `{node.tag[:60]}` is not supported: write the value without it",
                node.start_mark.line + 1,
            )

    def scalar(self, node: yaml.ScalarNode) -> tuple[object, str]:
        written, kind = node.value, node.tag.removeprefix(CORE)
        if not node.tag.startswith(CORE) or kind not in ("str", "int", "float", "bool", "null", "timestamp", "value"):
            raise Unreadable(
                f"the tag `{node.tag[:60]}` is not supported: write the value without it",
                node.start_mark.line + 1,
            )
        if kind == "null":
            return None, ""
        if kind == "bool":
            return written.lower() in ("true", "yes", "on"), "" if written.lower() in ("true", "false") else written
        if kind in ("int", "float") and len(written) > 64:
            raise Unreadable("a number has more than 64 characters", node.start_mark.line + 1)
        digits = written.lstrip("+-")
        if kind == "int" and NUMBER.fullmatch(written) and (len(digits) == 1 or digits[0] != "0"):
            return int(written.replace("_", "")), ""
        if kind == "float" and NUMBER.fullmatch(written):
            return float(written.replace("_", "")), written
        return written, ""
