"""Run, in a repository, every command that a reviewer uses. The audit hook of audited.py watches; git is the only
program that may be started.

    python audited_commands.py REPOSITORY

The commands are the steps of the Action, the hooks of pre-commit, `xpc diff`, `xpc lock` and `xpc verify --all`. Prints
JSON: `findings` of the hook, the `statuses` by command, what was printed, and the text of the comment.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
import time

from audited_review import ReviewWatch

SPEC = "specs/a.xp"


def main() -> None:
    from xpc.compiler.cli import main as xpc
    from xpc.compiler.files.inputs import UsageError
    from xpc.compiler.review.pull_request import comment, entries
    from xpc.compiler.review.pull_request.check import check
    from xpc.compiler.review.pull_request.verify import verify

    sys.dont_write_bytecode = True
    os.environ["XPC_CACHE"] = "off"
    os.chdir(sys.argv[1])
    files = [os.path.relpath(os.path.join(where, name)) for where, _, names in os.walk(".") for name in names]
    files = [one for one in files if not one.startswith(".git/")]
    text: list[str] = []

    def commented() -> int:
        text.append(comment(list(entries(".", "main"))))
        return 0

    commands = {
        "check": lambda: check(["--format", "github", "--base", "main", "--", "."]),
        "comment": commented,
        "hook check": lambda: check(["--hook", "--", *files]),
        "hook verify": lambda: verify(["--", *files]),
        "verify": lambda: verify(["--all", "--strict", "--base", "main", "--", "."]),
        "diff": lambda: xpc(["diff", f"main:{SPEC}", SPEC, "--exit-code"]),
        "diff bundle": lambda: xpc(["diff", "specs/a.bundle", SPEC, "--exit-code"]),
        "lock": lambda: xpc(["lock", SPEC]),
        "verify --all": lambda: xpc(["verify", "--all", "."]),
    }
    watch = ReviewWatch(sys.argv[1])
    watch.allowed += [os.path.realpath(tempfile.gettempdir()), os.devnull]
    sys.addaudithook(watch)
    kept = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = out = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="strict")
    statuses: dict[str, object] = {}
    seconds: dict[str, float] = {}
    for name, run in commands.items():
        start = time.process_time()
        try:
            watch.on = True
            statuses[name] = run()
        except UsageError as error:
            statuses[name] = f"UsageError: {error}"
        except SystemExit as error:
            statuses[name] = error.code
        except BaseException as error:
            # the test that started this process fails with these findings
            watch.findings.append(f"{name}: {type(error).__name__}: {error}"[:500])
        finally:
            watch.on = False
        seconds[name] = round(time.process_time() - start, 2)
    sys.stdout, sys.stderr = kept
    out.flush()
    printed = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    answer = {
        "findings": watch.findings, "statuses": statuses, "output": printed, "comment": "".join(text),
        "seconds": seconds,
    }  # fmt: skip
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
