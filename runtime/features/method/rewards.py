"""Reward functions for GRPO and RLOO: built-in functions by name, and functions in files of the bundle.

Names and formulas are those of Open-R1 (src/open_r1/rewards.py), and defaults are those of its GRPOScriptArguments. A
function gets ``prompts``, ``completions``, ``completion_ids`` and the other columns of the data as keyword arguments.
It returns one number per completion, or None for a completion without a reward.
"""

import math
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from hashlib import sha256
from inspect import iscoroutinefunction, signature
from types import ModuleType
from typing import Any

from ...core.errors import RunError, rank
from ...core.feature import Bundle, Feature, Model, Tokenizer
from ..launch.verified_files import changed
from . import reward_calls

Function = Callable[..., Any]
STEPS = r"(Step \d+:|^\d+\.|\n-|\n\*|First,|Second,|Next,|Finally,)"
TAGS = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")


class Rewards(Feature):
    """Hooks for a run with reward functions."""

    def before_rows(self, bundle: Bundle, tokenizer: Tokenizer | None) -> list[str]:
        """Check that the reward functions can be loaded. If they load models, progress bars go to a terminal only."""
        # this import needs tqdm, which the environment of a vLLM server may lack
        from ...library_internals import progress_bars

        progress_bars.capture(rank() == 0)
        try:
            _loaded(bundle)
        except RunError as error:
            return [str(error)]
        return []

    def check_columns(self, bundle: Bundle, columns: list[str]) -> list[str]:
        """Check that the reward functions can be called with the columns of a source."""
        try:
            found = [problem(bundle, function, columns) for function in _loaded(bundle)]
        except RunError:  # before_rows reports the error
            return []
        return [one for one in found if one]

    def check_first_row(self, bundle: Bundle, source: str, row: Mapping[str, Any], tokenizer: Tokenizer) -> list[str]:
        """Call each function once with this row. Report an exception, a result that trl cannot use, or a slow call."""
        try:
            loaded = _loaded(bundle)
        except RunError:  # before_rows reports the error
            return []
        values, size = reward_calls.arguments(
            bundle.stack["reward_given"], row, bundle.arguments.get("num_generations") or 2, tokenizer
        )
        callable_ones = [one for one in loaded if problem(bundle, one, list(row)) is None]
        found = [reward_calls.first_call(one, values, size, f"row 0 of {source}") for one in callable_ones]
        return [one for one in found if one]

    def trainer_options(self, bundle: Bundle, model: Model, load: Callable[[], Model], options: dict[str, Any]) -> None:
        """Pass the reward functions to the trainer, in the order of ``reward_weights``."""
        options["reward_funcs"] = [reward_calls.checked(one) for one in functions(bundle)]
        ignore_token_types(options["processing_class"], model)


def texts(completions: list[Any]) -> list[str]:
    """The text of each completion: the completion itself, or the content of its first message."""
    return [one if isinstance(one, str) else one[0]["content"] for one in completions]


def verified(answers: list[str], solution: list[str], **logs: Any) -> list[float | None]:
    """1 for an answer that math_verify finds equal to the solution, otherwise 0. None if math_verify cannot parse the
    solution, such as null.

    This uses trl's function if the installed trl has one, otherwise Open-R1's.
    """
    try:
        from trl.rewards import accuracy_reward
    except ImportError:
        return [_same(answer, truth) for answer, truth in zip(answers, solution, strict=True)]
    turns = [[{"role": "assistant", "content": answer}] for answer in answers]
    there = [at for at, truth in enumerate(solution) if isinstance(truth, str)]
    if logs or len(there) == len(solution):  # every row has a solution, or trl accepts null
        return list(accuracy_reward(turns, solution, **logs))
    found = dict(zip(there, accuracy_reward([turns[at] for at in there], [solution[at] for at in there]), strict=True))
    return [found.get(at) for at in range(len(solution))]


def _same(answer: str, truth: str) -> float | None:
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse, verify

    gold = parse(truth) if isinstance(truth, str) else None
    if not gold:
        return None
    latex = LatexExtractionConfig(
        normalization_config=NormalizationConfig(units=True), boxed_match_priority=0, try_extract_without_anchor=False
    )
    return float(verify(gold, parse(answer, extraction_config=[latex], extraction_mode="first_match")))


def accuracy_reward(completions: list[object], solution: list[str], **given: object) -> list[float | None]:
    """1 if the answer equals the solution in the row, else 0."""
    logs = {"log_extra": given["log_extra"]} if given.get("log_extra") else {}
    return verified(texts(completions), solution, **logs)


def format_reward(completions: list[object], **_: object) -> list[float]:
    """1 if a text consists of thoughts in think tags and then an answer in answer tags, otherwise 0."""
    expected = re.compile(r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$", re.DOTALL | re.MULTILINE)
    return [float(bool(expected.match(text))) for text in texts(completions)]


def tag_count_reward(completions: list[object], **_: object) -> list[float]:
    """A quarter for each of the four tags (with its line breaks) that is in the text exactly once."""
    return [sum(0.25 for tag in TAGS if text.count(tag) == 1) for text in texts(completions)]


def reasoning_steps_reward(completions: list[object], **_: object) -> list[float]:
    """The number of words that begin a reasoning step, such as "First," or "Step 1:", divided by 3; at most 1."""
    return [min(1.0, len(re.findall(STEPS, text)) / 3) for text in texts(completions)]


def len_reward(completions: list[object], solution: list[str], **_: object) -> list[float]:
    """From 0.5 for the shortest completion to -0.5 for the longest; a wrong completion gets at most 0 (Kimi k1.5).

    Lengths are in characters, compared within one call's completions.
    """
    answers = texts(completions)
    right = [one is None or one > 0 for one in verified(answers, solution)]
    lengths = [len(text) for text in answers]
    least, most = min(lengths), max(lengths)
    if most == least:
        return [0.0] * len(answers)
    shares = [0.5 - (length - least) / (most - least) for length in lengths]
    return [share if good else min(0.0, share) for share, good in zip(shares, right, strict=True)]


def cosine(
    min_value_wrong: float = 0.0,
    max_value_wrong: float = -0.5,
    min_value_correct: float = 0.5,
    max_value_correct: float = 1.0,
    max_len: int = 1000,
) -> Function:
    """A reward for correct answers that falls, along half a cosine, from ``max_value_correct`` for an empty answer to
    ``min_value_correct`` for ``max_len`` characters and more. In Open-R1, the reward of longer answers rises again.

    For wrong answers, the reward falls from ``min_value_wrong`` to ``max_value_wrong``: from 0 to -0.5 by default.
    """

    def cosine_scaled_reward(completions: list[object], solution: list[str], **_: object) -> list[float | None]:
        answers = texts(completions)
        out: list[float | None] = []
        for text, right in zip(answers, verified(answers, solution), strict=True):
            if right is None:
                out.append(None)
                continue
            low, high = (min_value_correct, max_value_correct) if right else (max_value_wrong, min_value_wrong)
            out.append(low + 0.5 * (high - low) * (1 + math.cos(min(len(text) / max_len, 1) * math.pi)))
        return out

    return cosine_scaled_reward


def repetition_penalty(ngram_size: int = 3, max_penalty: float = -1.0) -> Function:
    """The share of repeated n-grams of ``ngram_size`` words, times the penalty (arXiv 2502.03373, C.2)."""

    def repetition_penalty_reward(completions: list[object], **_: object) -> list[float]:
        out = []
        for text in texts(completions):
            words = text.lower().split()
            runs = list(zip(*(words[start:] for start in range(ngram_size)), strict=False))
            out.append((1 - len(set(runs)) / len(runs)) * max_penalty if runs else 0.0)
        return out

    return repetition_penalty_reward


def soft_overlong_punishment(max_completion_len: int, soft_punish_cache: int) -> Function:
    """0 for short completions. Within the last ``soft_punish_cache`` tokens before ``max_completion_len``, the reward
    falls to -1 (DAPO, eq. 13). Open-R1 has fixed defaults, 16384 and 4096 tokens. A bundle without these lengths uses
    the run's limit of a completion, and a quarter of ``max_completion_len``.
    """

    def soft_overlong_punishment_reward(completion_ids: list[list[int]], **_: object) -> list[float]:
        out = []
        for ids in completion_ids:
            over = len(ids) - (max_completion_len - soft_punish_cache)
            out.append(-1.0 if len(ids) > max_completion_len else -over / soft_punish_cache if over > 0 else 0.0)
        return out

    return soft_overlong_punishment_reward


def code_format(language: str = "python") -> Function:
    """``format_reward`` for answers with a code block in ``language``, or in that of the row's column ``language``."""

    def code_format_reward(completions: list[object], **columns: Any) -> list[float]:
        answers = texts(completions)
        out = []
        for text, row_language in zip(answers, columns.get("language") or [language] * len(answers), strict=True):
            pattern = rf"^<think>\n.*?\n</think>\n<answer>\n.*?```{re.escape(row_language)}.*?```.*?\n</answer>$"
            out.append(float(bool(re.match(pattern, text, re.DOTALL | re.MULTILINE))))
        return out

    return code_format_reward


PLAIN: Mapping[str, Function] = {
    "accuracy": accuracy_reward,
    "format": format_reward,
    "len": len_reward,
    "length": len_reward,
    "reasoning_steps": reasoning_steps_reward,
    "tag_count": tag_count_reward,
}
CONFIGURABLE: Mapping[str, Callable[..., Function]] = {
    "code_format": code_format,
    "cosine": cosine,
    "repetition_penalty": repetition_penalty,
    "soft_overlong_punishment": soft_overlong_punishment,
}
"""Maps the name of a built-in reward function with settings to a function that gets the settings and returns it."""
SANDBOXED = ("binary_code", "cf_code", "code", "ioi_code")
"""Open-R1's rewards that run generated programs on a service outside of this machine."""


def ignore_token_types(tokenizer: Tokenizer, model: Model) -> None:
    """If the model does not use `token_type_ids`, remove them from the tokenizer's outputs: trl 0.24 would pass them to
    `generate`."""
    if "token_type_ids" not in signature(type(model).forward).parameters:
        tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]


def functions(bundle: Bundle) -> list[Function]:
    """The reward functions in the order of the bundle. ``reward_weights`` has the same order. Raises RunError."""
    method = bundle.plan["method"]
    if not method["rewards"] and not (method.get("tools") and method["tools"]["environment"]):
        raise RunError(f"{bundle.method} needs a reward function, but this bundle has none")
    return [_function(bundle, reward) for reward in bundle.plan["method"]["rewards"]]


@cache
def _loaded(bundle: Bundle) -> list[Function]:
    """The reward functions, loaded once for the preflight and the run, so that files of the bundle run only once."""
    return functions(bundle)


def _function(bundle: Bundle, reward: Mapping[str, Any]) -> Function:
    name = reward["name"]
    if reward["file"] is not None:
        return _with_options(of_file(bundle, reward), reward.get("options") or {})
    options = dict(reward.get("options") or {})
    if name in SANDBOXED:
        raise RunError(
            f"the reward {name!r} runs generated programs in a sandbox, which a bundle does not include; "
            'write a function that calls your sandbox and name it as "file.py:function"'
        )
    if name not in CONFIGURABLE and (name not in PLAIN or options):
        known = ", ".join(sorted({*PLAIN, *CONFIGURABLE}))
        reason = "has no settings" if name in PLAIN else f"is not known; known are {known}"
        raise RunError(f"the reward {name!r} {reason}")
    if name in PLAIN:
        return PLAIN[name]
    if name == "soft_overlong_punishment":
        limit = options.setdefault("max_completion_len", int(bundle.arguments["max_completion_length"]))
        options.setdefault("soft_punish_cache", max(1, limit // 4))
    try:
        return CONFIGURABLE[name](**options)
    except TypeError as error:
        raise RunError(f"the reward {name!r} does not take these settings: {error}") from error


def _with_options(function: Function, options: Mapping[str, Any]) -> Function:
    """The function with fixed values for some arguments. It keeps its name, which trl uses in the names of metrics."""
    if not options:
        return function
    made = partial(function, **options)
    made.__name__ = reward_calls.name_of(function)  # type: ignore[attr-defined]
    return made


def of_file(bundle: Bundle, named: Mapping[str, Any], kind: str = "reward functions") -> Function:
    """Compare a file's digest with the bundle's, execute the file, and return its function. Raises RunError."""
    path, expected = bundle.inside(named["file"]), named["sha256"]
    try:
        with open(path, "rb") as handle:
            code = handle.read()
    except OSError as error:
        raise RunError(f"cannot read the {kind} in {path}: {error.strerror}") from error
    if expected is None or sha256(code).hexdigest() != expected.removeprefix("sha256:"):
        raise changed(path)
    module = _modules.get(path)
    if module is None:
        module = ModuleType(f"bundle_{sha256(code).hexdigest()[:12]}")
        module.__file__ = path
        sys.modules[module.__name__] = module  # dataclasses and pickle look up a class's module in sys.modules
        try:
            exec(compile(code, path, "exec"), module.__dict__)
        except Exception as error:  # the file may raise any exception
            raise RunError(f"{path} cannot be executed: {type(error).__name__}: {error}") from error
        _modules[path] = module
    function = getattr(module, named["function"], None)
    if not callable(function):
        raise RunError(f"{path} defines no function {named['function']!r}")
    return function  # type: ignore[no-any-return]


_modules: dict[str, ModuleType] = {}
"""Maps the path of an executed file to its module: two functions of a file share this module."""


def problem(bundle: Bundle, reward: Function, columns: list[str]) -> str | None:
    """A sentence that says why this function cannot be called with these columns. None if it can be."""
    name = reward_calls.name_of(reward)
    if not bundle.stack["reward_async"] and iscoroutinefunction(reward):
        return f"the reward {name} is asynchronous, which the installed trl cannot call"
    own = [one for one in columns if one not in ("prompt", "completion", "completion_ids")]
    given = [*bundle.stack["reward_given"], *own]
    try:
        signature(reward).bind(**dict.fromkeys(given))
    except TypeError as error:
        return f"the reward {name} cannot be called: {error}; its arguments are {', '.join(given)}"
    except ValueError:  # some built-in functions have no signature
        return None
    return None
