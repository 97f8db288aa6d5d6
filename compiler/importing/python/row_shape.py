"""The class `Shape`: the row format of a script's dataset, which `shapes.py` derives and writes to the draft."""

from __future__ import annotations

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.python.data import Data
from xpc.compiler.importing.python.interpreter.values import Location, Unknown
from xpc.compiler.importing.python.rows import Prompt, Turns
from xpc.compiler.importing.text.entries import Entry
from xpc.compiler.importing.trl import versions
from xpc.compiler.importing.trl.data import system_prompt
from xpc.grammar.record import mutable

ONCE = "map the rows once, and name the file that has them"
ENDED = "0.17"
"""In this and later versions of TRL, SFTTrainer appends the eos token to texts that do not end with it."""
PREFERRED = "0.15"
"""In this and later versions of TRL, SFTTrainer reads the columns `prompt` and `completion` if the rows have them."""


@mutable
class Shape:
    """The row format of a data source, as far as it is known. `columns` are in the order of the format. `plain` is true
    if the trainer is transformers' Trainer, for which the script tokenizes the rows itself.
    """

    draft: Draft
    data: Data
    location: Location
    columns: tuple[str, ...] = ()
    plain: bool = False

    def entry(self, key: str, value: object = None) -> Entry:
        """A configuration entry for a column that the script computes, with the file and line of the computation."""
        location = self.data.made.get(key, self.location)
        return location.entry(f"rows.{key}", value)

    def refuse(self, key: str, why: str = "") -> None:
        """Report an error for a column that a spec cannot express."""
        value = self.data.columns.get(key)
        reason = why or (
            value.why if isinstance(value, Unknown) else "a spec cannot express how the script computes it"
        )
        self.draft.error(self.entry(key), f"the column `{key}`: {reason}", ONCE)

    def template(self, prompt: Prompt, key: str) -> str | None:
        """Set `prompt_template` unless the prompt is a single column. Returns the column that the spec names as the
        prompt; None if the prompt contains no column.
        """
        if prompt.column:
            return prompt.column
        if prompt.known is not None and not prompt.template:
            return None
        self.draft.put("data.prompt_template", prompt.template, self.entry(key, prompt.template))
        # the rendered template replaces the first column that it reads
        name = prompt.template.partition("{{ ")[2].partition(" ")[0]
        return name or None

    def pair(self, prompt: str, answer: str, key: str) -> None:
        """Set the format of rows with a prompt and its answer, which is the script's column `key`."""
        self.columns = (prompt, answer)
        self.draft.put("data.format", "prompt_completion", self.entry(key, answer))

    def learn(self, masked: bool, everything: str) -> None:
        """Set whether the script trains only on answers, or on `everything`."""
        why = "the script trains on " + ("answers" if masked else everything)
        self.draft.put("method.completion_only", masked, None, why)

    def before(self, version: str) -> str:
        """The TRL versions below `version` for which the script may be written, such as `trl 0.12 to 0.14`; "" if there
        are none.
        """
        order = versions.numbers()
        older = [one for one in self.draft.fitting if order.index(one) < order.index(version)]
        return f"trl {older[0]}" + (f" to {older[-1]}" if len(older) > 1 else "") if older else ""

    def end(self, key: str, ended: bool) -> None:
        """Report a difference if the script adds no eos token to its texts. A run of the spec adds an eos token to each
        text, and trains on it.
        """
        old = self.before(ENDED)
        if ended or self.data.ended or not (self.plain or old):
            return
        trainer = "the script" if self.plain else f"{old}, for which the script may be written,"
        why = f"{trainer} adds no eos token to these texts; a run of the spec trains on an eos token after each row"
        self.draft.differs(key, why, self.entry(key))

    def turns(self, turns: Turns, key: str) -> None:
        """Set the system prompt of a conversation, or the column that contains it."""
        if turns.system:
            system_prompt(self.draft, self.entry(key, turns.system))
        elif turns.system_column:
            self.draft.put("data.system_column", turns.system_column, self.entry(key, turns.system_column))
