"""`checked` and `compiled` of compile_support for hostile input: they fail if a call takes ten seconds of CPU time."""

import compile_support
from cpu import limited


def checked(*arguments, **named):
    """`compile_support.checked` with a limit on CPU time."""
    with limited():
        return compile_support.checked(*arguments, **named)


def compiled(*arguments, **named):
    """Call `compile_support.compiled` with a limit on CPU time."""
    with limited():
        return compile_support.compiled(*arguments, **named)
