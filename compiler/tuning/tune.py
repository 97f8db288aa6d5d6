"""`xpc tune SPEC`: write bundles for short runs (probes) with the settings that should be fastest, and read what the
finished probes measured.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence

from xpc.compiler.files.atomic import replace_files
from xpc.compiler.files.bundle import BundleError, write
from xpc.compiler.files.inputs import UsageError, located, read_spec
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.typed import show
from xpc.compiler.lower import lower
from xpc.compiler.pipeline import check_text
from xpc.compiler.plan import GIB
from xpc.compiler.plan.calibration import Reading
from xpc.compiler.plan.changes import LEAST_GAIN, Change, effect
from xpc.compiler.render import render
from xpc.compiler.render.argument_parser import ArgumentParser
from xpc.compiler.render.line_difference import line_difference
from xpc.compiler.render.output import show_rendered
from xpc.compiler.render.visible import visible
from xpc.compiler.review.edit import with_value
from xpc.compiler.review.finished_run import SUMMARY
from xpc.compiler.spec.checked import CheckedSpec
from xpc.compiler.tuning import calibration_file, probes
from xpc.compiler.tuning.finished import events, reading
from xpc.grammar.package_data import read_text
from xpc.grammar.record import evolve, record

EPILOG = (
    "Without options, the command writes the probes and a script that runs them. Probes do not change what is learned: "
    "global batch, lengths, rows and loss are those of the spec. Exit status: 0 if probes were written or read, 1 if "
    "the spec does not compile or no probe has finished, 2 for wrong usage."
)


@record
class Probe:
    """A change to try: its number, the files of the bundle that tries it, and the output folder of this bundle's
    run.
    """

    number: int
    change: Change
    files: Mapping[str, bytes]
    out: str


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    parser = ArgumentParser(
        "xpc tune", description="Find the fastest way to run a spec, by short runs on your own GPUs.", epilog=EPILOG
    )
    parser.add_argument("file", metavar="SPEC", help="a spec")
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="the folder of the probes (default: ./STEM.tune for STEM.xp)"
    )
    parser.add_argument("--read", metavar="DIR", help="read what the probes in DIR measured, and show the best change")
    parser.add_argument("--run", metavar="OUT", help="read the measurements of a finished run in a folder")
    parser.add_argument("--calibration", metavar="FILE", help="write the measurements to FILE, for `xpc plan`")
    return parser.parse_args(list(arguments))


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Return the printed text and the exit status. Raises UsageError."""
    if options.file == "-":
        raise UsageError("tune needs a spec in a file, not standard input")
    if options.calibration is not None and options.read is None and options.run is None:
        raise UsageError("--calibration needs --read DIR or --run OUT, whose measurements it writes to the file")
    data, name, workspace = read_spec(options.file)
    workspace = evolve(workspace, hashes=True)
    checked = check_text(data, name, workspace)
    if checked.members:
        raise UsageError(f"{options.file} is a sweep: write one of its members as a spec, and tune this spec")
    if checked.spec is None:
        show_rendered(render(located(checked.problems, options.file), "full"), sys.stderr)
        return "", 1
    spec = checked.spec
    if options.run is not None:
        lines, status = _of_run(spec, options.run, options.calibration)
    else:
        folder = _plain(options.read or options.output or f"{name.removesuffix('.xp')}.tune")
        found = _probes(spec, folder)
        if options.read is None:
            lines, status = _written(options.file, folder, found), 0
        else:
            lines, status = _read(options, spec, found, workspace)
    return "".join(f"{visible(line)}\n" for line in lines), status


def _plain(folder: str) -> str:
    """The path of a folder, as the specs of probes write it: relative to the working directory, or absolute if the
    folder is outside of it.
    """
    whole = os.path.abspath(folder)
    near = os.path.relpath(whole)
    return whole if near.startswith(os.pardir) else near


def _probes(spec: CheckedSpec, folder: str) -> list[Probe]:
    """Compile the probes of a spec. A change that a rule refuses gets no probe."""
    made: list[Probe] = []
    for number, change in enumerate(probes.candidates(spec), 1):
        _, out = probes.where(folder, number)
        short = probes.probe(spec, change.settings, out)
        if isinstance(short, CheckedSpec):
            made.append(Probe(number, change, lower(short), out))
        elif not change.settings:
            raise UsageError(
                f"{spec.name} cannot be probed for {probes.STEPS} steps: {short[0].code} {short[0].message}"
            )
    return made


def _written(file: str, folder: str, found: Sequence[Probe]) -> list[str]:
    try:
        for one in found:
            write(one.files, probes.where(folder, one.number)[0])
        script = os.path.join(folder, "probe.sh")
        numbers = " ".join(str(one.number) for one in found)
        text = read_text(__file__, "probes.sh")
        text = text.format(many=len(found), steps=probes.STEPS, spec=_quoted(file), numbers=numbers)
        replace_files({script: text.encode("utf-8", "surrogateescape")})
        os.chmod(script, 0o755)
    except BundleError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}") from error
    lines = [f"wrote {folder}: {len(found)} probes of {probes.STEPS} steps each"]
    for one in found:
        reported = effect(one.change)
        lines.append(f"  {one.number}  {_name(one.change)}" + (f" (planned: {reported})" if reported else ""))
    return [
        *lines, "run them where the spec is launched, then read them:", f"  {_quoted(script)}",
        f"  xpc tune {_quoted(file)} --read {_quoted(folder)}",
    ]  # fmt: skip


def _quoted(path: str) -> str:
    return shlex.quote(path)


def _name(change: Change) -> str:
    return " with ".join(change.typed) or "as it is"


def _read(
    options: argparse.Namespace, spec: CheckedSpec, found: Sequence[Probe], workspace: Workspace
) -> tuple[list[str], int]:
    """Return a pair: the lines to print (a table of the probes' measurements, and the best change), and the exit
    status.
    """
    # the measurement is about the complete run with this change, so it is stored with the spec of that run, and not
    # with the probe's own spec of 20 steps
    readings = {
        one.number: reading(one.change.plan.spec, one.files, one.out, f"probe {one.number} of {spec.name}")
        for one in found
    }
    lines = ["probe  s/step              tokens/s a GPU  peak GiB  change"]
    for one in found:
        lines.append(_row(one, readings[one.number]))
    done = [(one, each) for one in found if (each := readings[one.number]) is not None]
    if not done:
        return [*lines, f"no probe in {options.read} has finished: run {os.path.join(options.read, 'probe.sh')}"], 1
    lines += _losses([one.out for one, _ in done])
    if options.calibration is not None:
        calibration_file.add(options.calibration, [each for _, each in done])
        lines.append(f"wrote {len(done)} measurements to {options.calibration}")
    now = next((each for one, each in done if not one.change.settings), None)
    best, fastest = min(done, key=lambda pair: pair[1].seconds[0])
    gain = None if now is None else now.seconds[0] / fastest.seconds[0] - 1
    if not best.change.settings or (gain is not None and gain < LEAST_GAIN):
        return [*lines, "", "the unchanged run is the fastest: there is nothing to change"], 0
    reported = "" if gain is None else f", {gain:.0%} faster than the unchanged run"
    lines += ["", f"fastest: {_name(best.change)}{reported}", *_diff(options.file, spec, best.change, workspace)]
    return lines, 0


def _row(one: Probe, read: Reading | None) -> str:
    if read is None:
        return f"{one.number:>5}  did not finish                                {_name(one.change)}"
    middle, low, high = read.seconds
    seconds = f"{middle:.4g} ({low:.4g} to {high:.4g})"
    tokens = "" if read.tokens is None else f"{read.tokens:,.0f}"
    peak = "" if read.peak is None else f"{read.peak / GIB:.1f}"
    return f"{one.number:>5}  {seconds:<18}  {tokens:>14}  {peak:>8}  {_name(one.change)}"


def _losses(folders: Sequence[str]) -> Iterator[str]:
    """Yield a line with the largest relative difference between the losses of two probes at the same step. All probes
    should have the same losses.
    """
    curves = [{one["step"]: one["loss"] for one in events(folder)} for folder in folders]
    steps = set(curves[0]).intersection(*curves[1:])
    if len(curves) > 1 and steps:
        apart = max(
            (max(at) - min(at)) / max(1e-12, *map(abs, at)) for step in steps for at in [[one[step] for one in curves]]
        )
        yield f"the losses of all probes agree to {apart:.1g} of their value"


def _diff(file: str, spec: CheckedSpec, change: Change, workspace: Workspace) -> list[str]:
    """The lines that show how to make a change: a diff of the spec's file, or, if the file cannot be edited
    automatically, the settings that the user has to write.
    """
    text = spec.source.text
    after = text
    locations = {path: spec.values[path].origin.label for path in change.settings if path in spec.values}
    inside = {path: label.span.start for path, label in locations.items() if label and label.source is spec.source}
    # the last value in the file is replaced first, so that the offsets of the earlier values stay valid
    for path in sorted(change.settings, key=lambda one: -inside.get(one, -1)):
        after = with_value(after, spec.source.name, spec, path, show(BY_PATH[path], change.settings[path]))
    again = check_text(after.encode("utf-8", "surrogateescape"), spec.source.name, workspace).spec
    if again is None or any(again.get(path) != value for path, value in change.settings.items()):
        return ["type into the spec:", *(f"  {line}" for line in change.typed)]
    return line_difference(text.split("\n"), after.split("\n"), file, file, context=1)


def _of_run(spec: CheckedSpec, out: str, file: str | None) -> tuple[list[str], int]:
    """Return a pair: the lines to print about the measurements of a finished run, and the exit status."""
    found = reading(spec, lower(spec), out, f"run {os.path.normpath(out)}")
    if found is None:
        raise UsageError(f"the run in {out} has not finished: it has no {SUMMARY}")
    middle, low, high = found.seconds
    parts = [f"{middle:.4g} ({low:.4g} to {high:.4g}) seconds a step"]
    parts += [] if found.tokens is None else [f"{found.tokens:,.0f} tokens/s a GPU"]
    parts += [] if found.peak is None else [f"{found.peak / GIB:.1f} GiB at the peak"]
    lines = [f"{out}: {', '.join(parts)}"]
    if file is not None:
        calibration_file.add(file, [found])
        lines.append(f"wrote 1 measurement to {file}")
    return lines, 0
