"""A careless regular expression would take quadratic time for these texts. xpc reads them quickly."""

from __future__ import annotations

from pathlib import Path

import pytest
from case_support import MARKED, PLAIN, spec
from compile_support import checked, codes, errors, put, shown

pytestmark = pytest.mark.slow

OPEN = "{% generation %}"
TEMPLATES = {
    "opened": OPEN * 50_000,
    "blanks": "{%" + " " * 250_000 + "generation",
    "marks": "{%- " * 125_000,
    "closed": MARKED + "{% endgeneration %}" * 25_000,
    "tokens": PLAIN + "<|" * 125_000,
    "loops": "{% for a in b %}" * 25_000,
    "braces": "{" * 250_000,
    "comments": "{#" * 125_000,
    "expressions": "{{ role" * 75_000,
    "quotes": "{% '" + "\\'" * 125_000,
    "pairs": '{{ "' * 75_000,
    "blocks": PLAIN + (OPEN + "a{% endgeneration %}<|im_end|>") * 5_000,
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_hostile_templates_are_checked_quickly(name: str, tmp_path: Path) -> None:
    root = put(tmp_path, {"a.jinja": TEMPLATES[name]})
    for more in (('model(chat_template=file("a.jinja"))',), ('model(chat_template=file("a.jinja"), eos="<|x|>")',)):
        for method in ("method sft(assistant_only)", "method sft(completion_only)"):
            assert checked(spec(*more, method), root).problems is not None
    # two more checks of a template: its argument `brief`, and the generation prompt at the end of prompts
    online = spec('model(chat_template=file("a.jinja", brief=true))', "method grpo(rewards=length)")
    assert checked(online, root).problems is not None


def test_token_after_the_mark_is_found(tmp_path: Path) -> None:
    """The regular expression finds every token that stands after its mark, although it reads the text only once."""
    wrong = MARKED.replace("{% endgeneration %}", "{% endgeneration %}<|im_end|>")
    inside = MARKED.replace("{% endgeneration %}", "<|im_end|>{% endgeneration %}<|im_end|>")
    found = {}
    for name, text in {"right": MARKED, "wrong": wrong, "inside": inside, "twice": MARKED + wrong}.items():
        root = put(tmp_path, {"a.jinja": text})
        reported = checked(spec('model(chat_template=file("a.jinja"))', "method sft(assistant_only)"), root)
        found[name] = set(codes(reported, "warning")) | set(codes(reported, "error"))
    assert found["right"] == found["inside"]
    assert found["wrong"] == found["twice"] != found["right"]


@pytest.mark.parametrize(
    "pattern",
    [
        "a{99999999999999999999}",
        "(" * 1500 + ")" * 1500,
        "(" * 4000,
        "[[a]",
        "(a+)+$",
        "a(?i)",
        "[" * 4000,
        "[1" * 2000,
    ],
)
def test_patterns_that_python_cannot_read(pattern: str) -> None:
    found = checked(spec(f'freeze(except_parameters=["{pattern}"])'))
    assert set(errors(found)) <= {"XP474"}, shown(found)
