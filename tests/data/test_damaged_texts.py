"""The compiler reports texts whose characters were damaged when their file was made, and does not report ordinary
texts.
"""

from __future__ import annotations

import pytest

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
def test_damage(text: str, kind: str) -> None:
    expected = {kind} - {""}
    assert damage([text]) == expected
    assert damage(["", [{"role": "user", "content": text}, {"role": "assistant", "content": None}]]) == expected
    assert damage([[{"from": "gpt", "value": text}], 1]) == expected
