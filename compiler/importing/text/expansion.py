"""Expand the words of a shell script: variables, operators such as `${X:-3}`, arrays, arithmetic, and commands that
only compute a string.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re

from xpc.compiler.importing.text.arithmetic import WHOLE, computed
from xpc.compiler.importing.text.entries import MAX_SIZE, Unreadable
from xpc.compiler.importing.text.filters import PRINTED, filtered
from xpc.grammar.record import field, mutable

OWN_FOLDER = re.compile(
    r"""(?:cd\s+)?"?\$\(\s*dirname\s+(?:--\s+)?["']?\$\{?(?:BASH_SOURCE(?:\[0\])?|0)\}?["']?\s*\)((?:/\.\.)*)"?"""
    r"""(?:\s*(?:>\s*/dev/null\s*)?(?:2>&1\s*)?(?:&&|;)\s*pwd(?:\s+-P)?)?\s*"""
)
"""Matches commands that print the folder of the script or a folder above it, such as `cd "$(dirname "$0")/.." &&
pwd`.
"""
FOLDER = re.compile(r"""cd\s+(?:--\s+)?["']?([^"'&;|]+?)["']?\s*&&\s*pwd(?:\s+-P)?""")
"""Matches commands such as `cd "$DIR/.." && pwd`, which print the absolute path of a folder."""
SELF = re.compile(
    r"""dirname\s+(?:--\s+)?["']?(?:\$\((?:realpath|readlink\s+-f)\s+["']?)?\$\{?(?:BASH_SOURCE(?:\[0\])?|0)\}?["')]*"""
)
"""Matches `dirname "$0"` and `dirname "$(realpath "$0")"`."""
PIPED = re.compile(r"echo\s([^|]*)\|(?!\|)(.+)", re.S)
"""Matches a pipeline that begins with `echo`, such as `echo $NAME | cut -d/ -f2`."""
CACHED = re.compile(r"(?:find|ls)\s.*/models--([\w.-]+?)--([\w.-]+)/snapshots\b.*", re.S)
"""Matches a command that searches the hub's cache for a model: `ls ~/hub/models--org--name/snapshots`. The groups are
the owner and the name of the model.
"""
HOSTS = re.compile(r"scontrol\s+show\s+hostnames?\b[^|;&]*")
"""Matches `scontrol show hostnames $SLURM_JOB_NODELIST`, which prints the names of the nodes, one per line."""
HOSTS_COUNTED = re.compile(HOSTS.pattern + r"\|\s*wc\s+-[lw]\s*")
CARDS_COUNTED = re.compile(r"nvidia-smi\s+(?:-L|--list-gpus|--query-gpu=)[^|;&]*\|\s*wc\s+-l\s*")
"""Matches `nvidia-smi -L | wc -l`, which counts the GPUs of a node."""
OPERATION = re.compile(r"(?P<hash>#)?(?P<each>!)?(?P<name>\w+)(?:\[(?P<index>[^\]]*)\])?(?P<rest>.*)", re.S)
VARIABLE = re.compile(r"\$(\d|[A-Za-z_]\w*|[@*])")
DEPTH = 12
"""The largest depth of nested `${...}` and `$(...)`."""
LOGIN = ("USER", "HOME", "LOGNAME", "PWD", "HOSTNAME", "TMPDIR", "SCRATCH", "SLURM_JOB_ID", "SLURM_SUBMIT_DIR")
"""Variables that a login or a cluster always sets. Of several unknown variables in a text, messages name one that is
not among them, because only that one needs `--set`.
"""
MOST_NODES = 1000
"""The largest number of nodes of a Slurm job for which an array of node names has an element for each node."""
MOST_OPEN = 60
"""The largest depth of nested `$(...)` inside double quotes."""
MOST_WORK = 4 * MAX_SIZE
"""The maximum cost of reading a script: the characters of expanded variables, plus the characters of brackets inside
quotes, plus the variables that are copied for branches.
"""


@mutable
class Budget:
    """The limit on the cost of reading a script, shared by all branches of the script. Without it, a short script could
    take very long: values grow exponentially if each variable contains the previous one twice, and each branch of a
    condition copies all variables.
    """

    spent: int = 0

    def spend(self, cost: int, line: int = 0) -> None:
        """Add to the cost. Raises Unreadable if it exceeds the limit."""
        self.spent += cost
        if self.spent > MOST_WORK:
            raise Unreadable(f"expanding its variables takes more than {MOST_WORK} steps", line)


@mutable
class Variables:
    """The variables of a shell script: strings (`known`), arrays, and associative arrays (`tables`).

    `missing` maps a variable whose value is not completely known to the cause, the unset variable in its value, such as
    `$1`; in it, `NAME[@]` is the number of items of the array NAME. `positional` are the arguments of the current
    function.
    """

    known: dict[str, str] = field(factory=dict)
    missing: dict[str, str] = field(factory=dict)
    arrays: dict[str, list[str]] = field(factory=dict)
    tables: dict[str, dict[str, str]] = field(factory=dict)
    positional: list[str] | None = None
    budget: Budget = field(factory=Budget)

    def copy(self) -> Variables:
        """A copy of the variables, which a branch of a condition can change without changing the original."""
        several = [*self.arrays.values(), *self.tables.values()]
        self.budget.spend(len(self.known) + len(self.missing) + sum(map(len, several)))
        arrays = {key: list(one) for key, one in self.arrays.items()}
        tables = {key: dict(one) for key, one in self.tables.items()}
        return Variables(dict(self.known), dict(self.missing), arrays, tables, self.positional, self.budget)

    def assign(self, name: str, value: str, missing: str = "", more: bool = False) -> None:
        """Set a variable, as `NAME=value` does or, with `more`, `NAME+=value`. `missing` is the unknown variable in the
        value, or "".
        """
        before = self.known.get(name, "") if more else ""
        missing = missing or (self.missing.get(name, "") if more else "")
        self.known[name] = before + value
        self.missing.pop(name, None)
        if missing:
            self.missing[name] = missing

    def nodes(self, name: str) -> None:
        """Set an array to the unknown names of the Slurm job's nodes: SLURM_NNODES items if the script sets this
        variable, otherwise one.
        """
        count = self.known.get("SLURM_NNODES", "")
        names = ["$(scontrol)"] * (int(count) if WHOLE.fullmatch(count) and 0 < int(count) <= MOST_NODES else 1)
        self.known.pop(name, None)
        self.arrays[name] = names
        self.missing.update({f"{name}[{n}]": "$(...)" for n in range(len(names))})
        self.missing.pop(f"{name}[@]", None)
        if not count:
            self.missing[f"{name}[@]"] = "$(...)"

    def forget(self, name: str, cause: str = "") -> None:
        """Record that a variable was set to an unknown value: in `missing`, its cause is `cause` or else `${NAME}`
        (`$NAME` would mean that it is never set).
        """
        self.known.pop(name, None)
        self.arrays.pop(name, None)
        self.missing[name] = cause or f"${{{name}}}"


def joined(branches: list[Variables], before: Variables, cause: str = "") -> Variables:
    """The variables after a condition with an unknown outcome. A variable keeps its value if the value is the same
    after all branches; otherwise the value is unknown. `cause` is the variable that the condition compares
    (`Block.decided`).
    """
    if not branches:
        return before
    out = branches[0].copy()
    for name in {key for one in branches for key in (*one.known, *one.missing, *one.arrays)}:
        states = [(one.known.get(name), one.missing.get(name), one.arrays.get(name)) for one in branches]
        if any(one != states[0] for one in states):
            out.forget(name, cause)
            _keep_arguments(out, name, branches)
    return out


def _keep_arguments(out: Variables, name: str, branches: list[Variables]) -> None:
    """If branches set a variable to different commands or lists of arguments, keep the words that all values have in
    common.

    For example, the words before options that only some branches append are kept, and so is a command to which only
    some branches add a wrapper such as `taskset -c 0-7`.
    """
    is_array = any(name in one.arrays for one in branches)
    arrays = [one.arrays.get(name, []) for one in branches] if is_array else []
    texts = [one.known.get(name, "") for one in branches]
    if is_array and any(texts):
        return
    words = arrays or [one.split() for one in texts]
    base = min(words, key=len)
    branch, command = branches[words.index(base)], any(one.endswith(".py") for one in base)
    added = [one[len(base) :] for one in words if one != base]
    if command and all(one[-len(base) :] == base for one in words):
        more = []
    elif all(one[: len(base)] == base for one in words) and all(one[0].startswith("--") for one in added):
        more = [f"${{{name}[@]:{len(base)}}}"]
    else:
        return
    removed = {f"{name}[{n}]": branch.missing.get(f"{name}[{n}]", "") for n in range(len(base))}
    removed |= {f"{name}[{len(base)}]": one for one in more}
    if arrays:
        out.arrays[name] = [*base, *more]
    else:
        out.known[name] = " ".join([texts[words.index(base)], *more]).strip()
        removed = {name: branch.missing.get(name, "") or "".join(more)}
    out.missing = {key: one for key, one in {**out.missing, name: "", **removed}.items() if one}


def expand(text: str, state: Variables, line: int = 0, depth: int = 0) -> tuple[str, str]:
    """Replace the known variables in a string by their values. Returns the new string, and the first unknown variable
    in it, such as `$1`, or "".
    """
    out, missing, at = "", "", 0
    while at < len(text):
        start = at
        if text[at] == "`" and (end := text.find("`", at + 1)) > 0:
            value, removed = _command(text[at + 1 : end], state, line, depth)
            at = end + 1
        elif text.startswith("$((", at):
            at = closed(text, at + 1)
            value, removed = _arithmetic(text[start + 3 : at - 2], state, line, depth)
        elif text.startswith("$(", at):
            at = closed(text, at + 1)
            value, removed = _command(text[start + 2 : at - 1], state, line, depth)
        elif text.startswith("${", at):
            at = closed(text, at + 1)
            value, removed = _parameter(text[start + 2 : at - 1], state, line, depth)
        elif text[at] == "$" and (found := VARIABLE.match(text, at)):
            at = found.end()
            value, removed = _parameter(found[1], state, line, depth)
        else:
            at += 1
            out += text[start]
            continue
        state.budget.spend(len(value or ""), line)
        raw = text[start:at]
        if value is None and raw.startswith("${") and " " in raw and removed[:2] != "$(":
            # keep only the variable's name: the message in `${X:?message}` has spaces, which would split the word
            raw = removed.partition(" ")[0]
        if value is None and raw.startswith("$((") and removed != "$((...))":
            # keep only the variable's name: the spaces in `$((RANDOM % 100))` would split the word
            raw = removed.partition(" ")[0]
        out += raw if value is None else value
        missing = first_missing(missing, removed)
    return out, missing


def first_missing(one: str, other: str) -> str:
    """The variable to report for a word with two unknown variables: `other` if every login sets `one`, such as `$USER`;
    otherwise `one`.
    """
    return other if other and (not one or one.strip("${}") in LOGIN) else one


def closed(text: str, at: int, open: int = 0) -> int:
    """The position after the bracket that closes the `(` or `{` at position `at`, or the end of the text if there is
    none. `open` is the number of brackets around it.
    """
    if open > MOST_OPEN:
        return len(text)
    pair = "()" if text[at] == "(" else "{}"
    depth, quote = 0, ""
    while at < len(text):
        letter = text[at]
        if letter == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if letter == quote else quote
            if quote and letter == "$" and text.startswith("$(", at) and quote == '"':
                at = closed(text, at + 1, open + 1) - 1
        elif letter in "'\"" and pair == "()":
            quote = letter
        elif letter == pair[0]:
            depth += 1
        elif letter == pair[1]:
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    return len(text)


def _parameter(inside: str, state: Variables, line: int, depth: int) -> tuple[str | None, str]:
    """Expand `${inside}` or `$inside`. Returns the value, or None if it is unknown, and the unknown variable that is
    the reason.
    """
    found = OPERATION.fullmatch(inside)
    if inside in ("@", "*") and state.positional is not None:
        return " ".join(state.positional), ""
    if found is None or depth > DEPTH:
        return None, f"${{{inside}}}"
    name, index, rest = found["name"], found["index"], found["rest"]
    value, removed = _value(name, index, state, line, depth)
    if found["each"]:
        keys = list(state.tables.get(name, ())) or [str(n) for n in range(len(state.arrays.get(name, ())))]
        return (" ".join(keys), "") if keys else (None, f"${name}")
    if found["hash"]:
        if index in ("@", "*"):
            known = name in state.arrays and f"{name}[@]" not in state.missing
            return (str(len(state.arrays[name])), "") if known else (None, f"${name}")
        return (None, f"${name}") if value is None or removed else (str(len(value)), "")
    operator = re.match(r":?[-=+?]", rest)
    if operator is not None:
        word, kind = rest[operator.end() :].strip('"'), operator[0][-1]
        unset = value is None and name not in state.missing
        empty = unset or (operator[0][0] == ":" and value == "" and not removed)
        if kind == "+":
            return ("", "") if empty else expand(word, state, line, depth + 1)
        if empty and kind in "-=":
            filled, removed = expand(word, state, line, depth + 1)
            if kind == "=":
                state.assign(name, filled, removed)
            return filled, removed
        rest = ""
    if value is None:
        return None, removed or f"${name}"
    return _changed(value, rest, state, line, depth) if rest and not removed else value, removed


def _value(name: str, index: str | None, state: Variables, line: int, depth: int) -> tuple[str | None, str]:
    """Return the value of a variable or of an array's item, or None if it is not set, and the unknown variable in the
    value.
    """
    if WHOLE.fullmatch(name) and int(name) and state.positional is not None:
        return state.positional[int(name) - 1] if int(name) <= len(state.positional) else "", ""
    if index is None and name not in state.known and name in state.arrays:
        index = "0"  # `$ARRAY` is the first item of an array
    if index is None:
        return state.known.get(name), state.missing.get(name, "")
    if index in ("@", "*"):
        return (" ".join(state.arrays[name]), "") if name in state.arrays else (None, f"${name}")
    key, removed = expand(index.strip("\"'"), state, line, depth + 1)
    if name in state.tables:
        return state.tables[name].get(key), removed
    items = state.arrays.get(name, [])
    key = key if WHOLE.fullmatch(key) else state.known.get(key, "")
    if removed or not WHOLE.fullmatch(key) or not -len(items) <= int(key) < len(items):
        return None, removed or f"${name}"
    return items[int(key)], state.missing.get(f"{name}[{int(key) % len(items)}]", "")


def _changed(value: str, rest: str, state: Variables, line: int, depth: int) -> str:
    """Apply the operator in `${NAME...}` to a value. The operator is a text such as `##*/`, `%.json`, `//,/ `, `:0:3`
    or `,,`.
    """
    if rest in (",,", "^^"):
        return value.lower() if rest == ",," else value.upper()
    part = re.fullmatch(r":\s*([0-9]{1,18})(?:\s*:\s*([0-9]{1,18}))?", rest)
    if part is not None:
        end = None if part[2] is None else int(part[1]) + int(part[2])
        return value[int(part[1]) : end]
    cut = re.match(r"##?|%%?|//?", rest)
    if cut is None:
        return value
    operator, pattern = cut[0], rest[cut.end() :]
    if operator[0] == "/":
        old, _, new = pattern.partition("/")
        old, new = (expand(one.strip("\"'").replace("\\", ""), state, line, depth + 1)[0] for one in (old, new))
        if not old:
            return value
        state.budget.spend((value.count(old) if operator == "//" else 1) * len(new), line)
        return value.replace(old, new, -1 if operator == "//" else 1)
    pattern, _ = expand(pattern.strip("\"'"), state, line, depth + 1)
    # the loop below compares each prefix or suffix of the value with the pattern, so its cost grows quadratically
    state.budget.spend(len(value) ** 2 // 1000, line)
    lengths = range(len(value) + 1)
    for n in reversed(lengths) if len(operator) == 2 else lengths:
        piece = value[:n] if operator[0] == "#" else value[len(value) - n :]
        if fnmatch.fnmatchcase(piece, pattern):
            return value[n:] if operator[0] == "#" else value[: len(value) - n]
    return value


def numbered(inside: str, state: Variables, line: int, depth: int = 0) -> tuple[str, str]:
    """Replace the variables in an arithmetic expression, also without `$`, by their values. Returns the new expression,
    and the unknown variable in it, or "".
    """
    if depth > DEPTH:
        return inside, "$((...))"
    text, removed = expand(inside, state, line, depth + 1)
    known = {name: value for name, value in state.known.items() if name not in state.missing}
    text = re.sub(r"[A-Za-z_]\w*", lambda one: known.get(one[0], one[0]), text)
    unknown = re.search(r"[A-Za-z_]\w*", text)
    return text, removed or (f"${unknown[0]}" if unknown else "")


def _arithmetic(inside: str, state: Variables, line: int, depth: int) -> tuple[str | None, str]:
    """Compute `$((inside))`. Returns the value, or None if it is unknown, and the unknown variable."""
    text, removed = numbered(inside, state, line, depth)
    value = None if removed else computed(text)
    return (None, removed or "$((...))") if value is None else (str(value), "")


def _command(inside: str, state: Variables, line: int, depth: int) -> tuple[str | None, str]:
    """Return the output of `$(inside)`, and an unknown variable in it. The output of `pwd` and of the commands in
    `PRINTED` is computed here if their arguments are known; no command is executed.
    """
    inside = inside.strip()
    own = OWN_FOLDER.fullmatch(inside)
    if own is not None or SELF.fullmatch(inside):
        return posixpath.normpath("." + (own[1] if own is not None else "")), ""
    if inside == "pwd":
        return ".", ""
    folder = FOLDER.fullmatch(inside) if len(inside) < 500 and depth <= DEPTH else None
    if folder is not None:
        text, removed = expand(folder[1], state, line, depth + 1)
        return (None, removed) if removed else (posixpath.normpath(text), "")
    for machines, name in ((HOSTS_COUNTED, "SLURM_NNODES"), (CARDS_COUNTED, "SLURM_GPUS_ON_NODE")):
        if machines.fullmatch(inside) and name in state.known:
            return state.known[name], ""
    if depth > DEPTH:
        return None, "$(...)"
    piped = PIPED.fullmatch(inside)
    if piped is not None:
        text, removed = expand(piped[1].strip().removeprefix("-n ").strip().strip("\"'"), state, line, depth + 1)
        output = None if removed else filtered(text, piped[2])
        return output, "" if output is not None else removed or "$(...)"
    cached = CACHED.fullmatch(expand(inside[:500], state, line, depth + 1)[0]) if "/snapshots" in inside[:500] else None
    if cached is not None:
        return f"{cached[1]}/{cached[2]}", ""
    name, _, rest = inside.partition(" ")
    if name not in PRINTED or re.search(r"[|;&<>]", rest):
        return None, "$(...)"
    text, removed = expand(rest, state, line, depth + 1)
    words = [one.strip("\"'") for one in text.split() if one.strip("\"'") not in ("--", "-n", "-m", "-e")]
    output = None if removed or not words else PRINTED[name](words)
    return output, "" if output is not None else removed or "$(...)"
