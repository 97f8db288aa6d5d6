"""`checked` and `compiled` for hostile input: within one second of processor time."""

import compile_support
from cpu import limited


def checked(*arguments, **named):
    """As in compile_support, within one second of processor time."""
    with limited():
        return compile_support.checked(*arguments, **named)


def compiled(*arguments, **named):
    """The same."""
    with limited():
        return compile_support.compiled(*arguments, **named)
