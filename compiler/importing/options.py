"""The command-line options of `xpc import`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from xpc.compiler import stacks
from xpc.compiler.language.methods import METHODS
from xpc.compiler.render.argument_parser import ArgumentParser

KINDS = ("trl", "command", "deepspeed", "accelerate", "llamafactory", "axolotl", "torchtune", "python")
EPILOG = (
    "Every key of FILE becomes a setting, is kept under `extra` or in a comment, is noted as irrelevant, or causes an "
    "error that names its line. Exit status: 0 the spec is written, 1 nothing is written because a key cannot be "
    "imported, or the spec is written but `xpc check` refuses it, 2 wrong usage, 3 (with --partial) the spec is "
    "written and needs a decision."
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options of `xpc import`. A wrong option exits with status 2, as argparse does."""
    parser = ArgumentParser("xpc import", description="Write a spec from another tool's configuration.",
                                     epilog=EPILOG)  # fmt: skip
    parser.add_argument("file", nargs="?", metavar="FILE",
                        help="YAML of TRL, axolotl, LLaMA-Factory, torchtune, "
                        "accelerate; a DeepSpeed JSON; a shell or Python script; a notebook")  # fmt: skip
    parser.add_argument("--command", dest="command_line", metavar="LINE", help="a command line instead of a file")
    parser.add_argument("--from", dest="kind", choices=KINDS, help="what FILE is (default: recognized by its keys)")
    parser.add_argument("--accelerate", metavar="FILE", help="the YAML with which accelerate launches the run")
    parser.add_argument("--deepspeed", metavar="FILE", help="the DeepSpeed JSON of the run")
    parser.add_argument("--hardware", metavar="TEXT", help="the GPUs of one node, such as '8 x h100-80gb'")
    parser.add_argument("--nodes", type=int, metavar="N", help="number of nodes")
    parser.add_argument(
        "--method", choices=tuple(METHODS), help="training method (default: recognized by path and keys)"
    )
    parser.add_argument("--model", metavar="NAME", help="the model (default: the model in FILE)")
    parser.add_argument("--data", metavar="NAME", help="the training data (default: the data in FILE)")
    parser.add_argument("--prompt", metavar="NAME", help="the column with the prompts")
    parser.add_argument("--rewards", metavar="FILE",
                        help="the file next to the spec with the reward functions; the import copies those of a Python "
                        "script into it")  # fmt: skip
    parser.add_argument(
        "--target", choices=stacks.names(), help="stack of the spec (default: the stack for which FILE was written)"
    )
    parser.add_argument(
        "--set", dest="sets", action="append", default=[], metavar="NAME=VALUE",
        help="the value of a shell script's variable, or of an argument of a Python script",
    )  # fmt: skip
    help = "the number of the training command of a script; `all` with -o writes a spec for each"
    parser.add_argument("--pick", metavar="N", help=help)
    parser.add_argument("--trl", metavar="VERSION", help="the version of TRL for which FILE was written, such as 0.22")
    parser.add_argument(
        "--partial", action="store_true",
        help="write what is known; every other line becomes a comment, and a list says what to decide (exit status 3)",
    )  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help="the spec (default: standard output)")
    parser.add_argument(
        "--report", choices=("text", "json"), help="report how each key was imported; json goes to standard output"
    )
    parser.add_argument("--force", action="store_true", help="replace existing files")
    return parser.parse_args(list(arguments))
