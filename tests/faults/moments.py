"""Disturb runs at random moments: kill them, or request a stop."""

from __future__ import annotations

import random
import signal
import time

from fault_runs import HANGS, Going, Runs, checkpoints, events, signalled
from stacks import payload


def pause(here: Runs, going: Going, bundle: str, chance: random.Random) -> None:
    """Wait until a random moment of a run that has just started: before the first step, after some step, or during a
    save.
    """
    steps, lasts = payload(bundle)["arguments"]["max_steps"], here.lasts[bundle]
    first = int(going.before[-1].split("-")[1]) if going.before else 0
    step, where = chance.randint(first + 1, max(first + 1, steps - 1)), chance.choice(["start", "save", "step", "step"])
    end = time.monotonic() + HANGS
    while where != "start" and going.lives and going.reached() < step:
        assert time.monotonic() < end, f"the run makes no progress: {going.text}"
        if where == "save" and going.moment == "saving":
            break
        time.sleep(0.002)
    until = time.monotonic() + chance.uniform(0, {"start": 0.4 * lasts, "save": 0.05, "step": 2 * lasts / steps}[where])
    while time.monotonic() < until and going.lives:
        time.sleep(0.001)


def killed(here: Runs, bundle: str, folder: str, chance: random.Random, wanted: int) -> None:
    """Send `kill -9` to one process of a run, or to all its processes, at random moments."""
    for going, hit in here.disturbed(bundle, folder, wanted):
        pause(here, going, bundle, chance)
        node = len(going.pids) == 1 or chance.random() < 0.5
        if going.lives:
            hit[f"{'node' if node else 'rank'}, {going.moment}"] += 1
        going.send(signal.SIGKILL, *([] if node else [chance.randrange(len(going.pids))]))
        assert None not in going.wait(), f"a process has not ended after the kill: {going.text}"


def killed_launched(here: Runs, bundle: str, folder: str, chance: random.Random, wanted: int) -> None:
    """Send `kill -9` to the launcher, to one process, or to all processes. The processes that are not killed get no
    signal from the test, and must end by themselves.
    """
    for going, hit in here.disturbed(bundle, folder, wanted, here.launch):
        pause(here, going, bundle, chance)
        ranks = going.ranks
        who = chance.choice(["launcher", "launcher", "rank", "node"] if ranks else ["launcher"])
        if going.lives:
            hit[f"{who}, {going.moment}"] += 1
        if who == "launcher":
            signalled(going.pids[0], signal.SIGKILL)
        else:
            going.send(signal.SIGKILL, *([] if who == "node" else [chance.randrange(len(ranks))]))
        status = going.wait()
        # The launcher finds two ended processes if one was killed and the other one could not continue without it
        # (status 76).
        reported = {0: "", -signal.SIGKILL: "", 137: "was ended by SIGKILL", 76: "another process of the run has ended"}
        assert status[0] in reported, f"{status}: {going.text}"
        assert reported[status[0]] in going.text, f"{status}: {going.text}"


def stopped(here: Runs, bundle: str, folder: str, chance: random.Random, wanted: int) -> None:
    """Send SIGTERM or SIGUSR1 to a process or to all, once or twice."""
    for going, hit in here.disturbed(bundle, folder, wanted):
        pause(here, going, bundle, chance)
        ranks = [] if chance.random() < 0.5 else [chance.randrange(len(going.pids))]
        number = chance.choice([signal.SIGTERM, signal.SIGUSR1])
        training = bool(events(going.out)) and going.lives
        for _ in range(chance.choice([1, 2])):
            going.send(number, *ranks)
            time.sleep(0.02)
        status = going.wait()
        assert None not in status, f"the run does not stop: {going.text}"
        if set(status) == {0}:
            continue  # the run had finished before the signal
        hit[f"{number.name} to {'one' if ranks else 'all'}, {'training' if training else 'starting'}"] += 1
        # Before the first step, a process may have no handler yet; then the signal itself ends it.
        assert 75 in status or -number in status, f"{status}: {going.text}"
        if training and "before the first step" not in going.text and "stopped as asked" in going.text:
            assert set(status) == {75}, f"{status}: {going.text}"
            assert checkpoints(going.out) != going.before or owes(going, bundle), going.text


def owes(going: Going, bundle: str) -> bool:
    """Whether the evaluation at the step of the newest checkpoint is not finished, because the run was stopped during
    this evaluation.

    The next start then begins with this evaluation. If it is also stopped during the evaluation, it has trained no step
    and written no checkpoint.
    """
    arguments = payload(bundle)["arguments"]
    step = int(checkpoints(going.out)[-1].split("-")[1])
    every = arguments["eval_steps"] if arguments.get("eval_strategy") == "steps" else None
    done = any(event["step"] == step and "eval_loss" in event for event in events(going.out))
    return bool(every) and step % every == 0 and not done


def stopped_launched(here: Runs, bundle: str, folder: str, chance: random.Random, wanted: int) -> None:
    """Send SIGTERM or SIGUSR1 to the launcher, to one process, or to all processes, as a scheduler might. The launcher
    ends with status 75.
    """
    for going, hit in here.disturbed(bundle, folder, wanted, here.launch):
        pause(here, going, bundle, chance)
        ranks = going.ranks
        who = chance.choice(["launcher", "rank", "all"] if ranks else ["launcher"])
        number = chance.choice([signal.SIGTERM, signal.SIGUSR1])
        if who == "launcher":
            signalled(going.pids[0], number)
        else:
            going.send(number, *([] if who == "all" else [chance.randrange(len(ranks))]))
        status = going.wait()
        if status == [0]:
            continue  # the run had finished before the signal
        hit[f"{number.name} to {who}, {going.moment}"] += 1
        early = status == [-number] and not ranks  # the launcher's interpreter had not set a handler yet
        assert status == [75] or early, f"{status}: {going.text}"
        # The message can appear twice: a new fork has the launcher's handler until it sets its own. A process that is
        # not a fork never has the launcher's handler.
        assert early or "launch.sh: stopped as asked" in going.text, going.text
