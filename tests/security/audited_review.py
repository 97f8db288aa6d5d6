"""Run the steps of the GitHub Action in a repository. The audit hook of audited.py watches; git is the only program
that may be started.

    python audited_review.py REPOSITORY

Prints JSON: `findings` of the hook, the `statuses` and the output of the check, and the text of the comment.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tempfile

from audited import Watch


class ReviewWatch(Watch):
    """The audit hook of audited.py, except that git may be started in the repository that xpc has found."""

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        if self.on and event == "subprocess.Popen":
            words = args[1] if isinstance(args[1], list) else []
            if args[0] == shutil.which("git") and len(words) > 1 and str(words[1]).startswith("--git-dir="):
                return
        if self.on and event in ("os.posix_spawn", "os.putenv"):
            return
        super().__call__(event, args)


def main() -> None:
    from xpc.compiler.files.inputs import UsageError
    from xpc.compiler.review.pull_request import comment, entries
    from xpc.compiler.review.pull_request.check import check

    sys.dont_write_bytecode = True
    os.environ["XPC_CACHE"] = "off"
    os.chdir(sys.argv[1])
    watch = ReviewWatch(sys.argv[1])
    watch.allowed += [os.path.realpath(tempfile.gettempdir()), os.devnull]
    sys.addaudithook(watch)
    kept = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = out = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="strict")
    status, text, failed = -1, "", ""
    try:
        watch.on = True
        status = check(["--format", "github", "--base", "main", "--", "."])
        text = comment(list(entries(".", "main")))
    except UsageError as error:
        failed = str(error)
    except BaseException as error:
        # the test that started this process fails with these findings
        watch.findings.append(f"{type(error).__name__}: {error}")
    finally:
        watch.on = False
        sys.stdout, sys.stderr = kept
    out.flush()
    printed = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    answer = {"findings": watch.findings, "status": status, "output": printed, "comment": text, "failed": failed}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
