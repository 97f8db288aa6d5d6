"""The compiler reports texts whose characters were damaged when their file was made, and does not report ordinary
texts.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from case_support import spec, trained
from compile_support import checked, errors, put, shown

from xpc.compiler.data.damage import damage


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Un cafÃ©.", "mojibake"),
        ("Itâ€™s fine.", "mojibake"),
        ("20Â°C", "mojibake"),
        ("ÐŸÑ€Ð¸Ð²ÐµÑ‚", "mojibake"),
        ("NÃO, SÃO PAULO", ""),
        ("Привет, Ñandú, Ðe", ""),
        ("Tom &amp; Ann", "entities"),
        ("It&#39;s", "entities"),
        ("R&D; AT&T", ""),
        ("<p>Tom &amp; Ann</p>", ""),
        ("```\n&lt;\n```", ""),
        ("One\\nTwo", "escaped_lines"),
        ("One.\\n\\nTwo", "escaped_lines"),
        ("The end\\n", "escaped_lines"),
        ("print('a\\n')\nand more", ""),
        ('What is "\\n"?', ""),
        ("$\\nabla f \\neq 0$", ""),
        ("caf\ufffd", "lost"),
        ("a smile \ud83d", "lost"),
        ("a smile \U0001f600", ""),
        ("", ""),
    ],
)
def test_damaged_characters_are_found_in_all_shapes_of_rows(text: str, kind: str) -> None:
    expected = {kind} - {""}
    assert damage([text]) == expected
    assert damage(["", [{"role": "user", "content": text}, {"role": "assistant", "content": None}]]) == expected
    assert damage([[{"from": "gpt", "value": text}], 1]) == expected


@pytest.mark.parametrize(("name", "data", "codes_of", "text"), [
    ("a.csv", b"prompt;chosen;rejected\nq;a;b\n", ["XP124"], "separated by `;`: separate them by commas"),
    ("a.csv", b"prompt\tchosen\nq\ta\n", ["XP124"], "separated by tabs: separate them by commas"),
    ("a.csv", b"words\nq\n", ["XP124"], "its columns are words; "),
    ("a.csv", "prompt,chosen\nq,a\n".encode("utf-16"), ["XP124", "XP531"], "iconv -f utf-16 -t utf-8"),
    ("a.jsonl", b'{"text": "caf\xe9"}\n', ["XP531"], "iconv -f latin1 -t utf-8"),
])  # fmt: skip
def test_a_file_in_another_form_is_told_how_to_convert(
    tmp_path: Path, name: str, data: bytes, codes_of: list[str], text: str
) -> None:
    found = checked(spec(train=trained(f'qwen2.5-3b on "{name}"')), put(tmp_path, {name: data}))
    assert errors(found) == codes_of
    assert text in shown(found)
