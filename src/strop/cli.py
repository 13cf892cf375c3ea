"""The command line: doctor, plan, run, best, compare, explain, sync, ui, repeat."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.errors import StageFailure, StropError, nearest, one_line

if TYPE_CHECKING:
    from rich.console import Console

Arguments = argparse.Namespace


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0, or 2 with one line on stderr for a mistake in what was asked."""
    parser = _parser()
    arguments, rest = parser.parse_known_args(argv)
    if wrong := [word for word in rest if word.startswith("-") or "=" not in word]:
        parser.error(f"unrecognized arguments: {' '.join(wrong)}")
    if rest:  # overrides may stand before and after options
        arguments.overrides += rest
    try:
        return int(COMMANDS[arguments.command](arguments))
    except (StropError, OSError) as error:
        print(f"strop: {one_line(error)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        """Name the nearest command; argparse would print its usage first."""
        words = [word for word in sys.argv[1:2] if not word.startswith("-")]
        hint = f"; {nearest(words[0], COMMANDS)}" if words and words[0] not in COMMANDS else "; see strop --help"
        self.exit(2, f"strop: {message.partition(' (choose')[0]}{hint}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="strop", description="Which optimized form of a model to ship on given hardware.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    def add(name: str, help: str, overrides: bool = True, variants: Sequence[str] = ()) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help)
        sub.add_argument("--results", type=Path, default=Path("results"), help="folder of all results")
        for letter in variants:
            sub.add_argument(letter, help="a variant, by its name in the study's table or by its variant_id")
        if overrides:
            words = "study=NAME and Hydra overrides"
            sub.add_argument("overrides", nargs="*", default=[], metavar="KEY=VALUE", help=words)
        return sub

    doctor = commands.add_parser("doctor", help=(words := "Show what works on this machine, and how to get the rest."))
    doctor.description = words
    doctor.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    doctor.set_defaults(overrides=[])
    add("plan", "Show what a study would do: variants, chains, shared steps, what is cached and what is skipped.")
    run = add("run", "Run a study with Snakemake, and print the decision.")
    run.add_argument("--cores", default="all", help="cores to use, or 'all'")
    run.add_argument("-n", "--dry-run", action="store_true", help="show the jobs only")
    add("best", "Print a finished study's table, decision, and the files to ship.")
    add("compare", "Measure two variants directly against each other; scenario=NAME chooses the load.", variants="AB")
    why = "Say why a variant takes the time that it takes: its operators beside the reference's, and likely reasons."
    add("explain", why, variants=["VARIANT"])
    add("sync", "Send the runs that the tracking server lacks.")
    ui = add("ui", "Serve the MLflow UI of the embedded store, on this machine only.", overrides=False)
    ui.add_argument("--port", type=int, default=5000, help="port on the loopback interface")
    repeat = add("repeat", "Do one step again, in the foreground, and show its log.", overrides=False)
    repeat.add_argument("step", metavar="STAGE/ID", help="the step, as a failure names it")
    return parser


def project_folder() -> Path:
    """Return the nearest folder, from here upwards, that holds a Snakefile and conf/.

    Raises:
        StropError: there is none.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "Snakefile").is_file() and (folder / "conf").is_dir():
            return folder
    raise StropError(f"{here}: no Snakefile and conf/ here or above; go to the project's folder")


def _plan_of(arguments: Arguments) -> dict[str, Any]:
    from strop.plan import open_plan

    return open_plan(arguments.overrides, project_folder() / "conf", arguments.results)


def doctor(arguments: Arguments) -> int:
    """Print what there is on this machine."""
    from strop.report.doctor import examine, print_doctor

    if wrong := arguments.overrides:
        raise StropError(f"{wrong[0]}: strop doctor looks at the machine, and takes no overrides; see strop plan")
    found = examine()
    if arguments.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
    else:
        print_doctor(found, _console())
    return 0


def plan(arguments: Arguments) -> int:
    """Print the plan."""
    from strop.report.plan_table import print_plan

    print_plan(_plan_of(arguments), arguments.results, _console())
    return 0


def _console() -> Console:
    from rich.console import Console

    from strop.report.tables import WIDTH

    console = Console()
    if not console.is_terminal:  # a pipe has no width; rich takes 80 for it
        console.width = max(console.width, WIDTH)
    return console


def run(arguments: Arguments) -> int:
    """Hand the study to Snakemake; mistakes are found before it starts."""
    _plan_of(arguments)
    command = [sys.executable, "-m", "snakemake", "--cores", str(arguments.cores)]
    command += ["--snakefile", str(project_folder() / "Snakefile")]
    command += ["-n"] if arguments.dry_run else []
    command += ["--config", f"results={arguments.results}", f"overrides={_escaped(arguments.overrides)}"]
    return subprocess.call(command)


def _escaped(words: list[str]) -> str:
    """Return what `shlex.split` splits into `words`, without quotes, which Snakemake strips, or YAML in it."""
    return " ".join(re.sub(r"[^\w=.,:/+-]", r"\\\g<0>", word) for word in words)


def best(arguments: Arguments) -> int:
    """Print the decision of a study that has run."""
    from rich.console import Console

    from strop.report.tables import print_study

    found = _plan_of(arguments)
    summary = arguments.results / "studies" / found["study"]["name"] / "summary.parquet"
    if not summary.is_file():
        raise StropError(f"{summary}: not there; run it first: strop run {shlex.join(arguments.overrides)}")
    print_study(found, arguments.results, Console())
    return 0


def compare(arguments: Arguments) -> int:
    """Measure two variants against each other, and print the verdict."""
    from strop.head_to_head import floor_of, make_pair, measure, outcome

    if wrong := [word for word in (arguments.A, arguments.B) if re.match(r"[\w.]+=", word)]:
        raise StropError(f"{wrong[0]}: name the two variants first: strop compare A B {wrong[0]}")
    arguments.overrides = [re.sub("^scenario=", "benchmark=", word) for word in arguments.overrides]
    found = _plan_of(arguments)
    pair = make_pair(found, (arguments.A, arguments.B), arguments.overrides, arguments.results)
    floor = floor_of(pair, found["study"]["name"], arguments.results)  # a damaged summary is said before the work
    if pair.others:
        print(f"strop: under {pair.load}; the study has {', '.join(pair.others)}, too", file=sys.stderr)
    manifest = measure(pair, arguments.results, project_folder(), sys.stderr)
    if manifest.status != "ok":
        print(f"strop: {manifest.key}: {manifest.status}: {manifest.error}; see {manifest.log}", file=sys.stderr)
        return 1
    print("\n".join(outcome(pair, manifest, floor)))
    return 0


def explain(arguments: Arguments) -> int:
    """Print why a variant takes the time that it takes."""
    from strop.explain import explain as lines_of

    found = _plan_of(arguments)
    given = (arguments.overrides, arguments.results, project_folder())
    try:
        lines = lines_of(found, arguments.VARIANT, *given, sys.stderr)
    except StageFailure as failure:
        print(f"strop: {one_line(failure)}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


def sync(arguments: Arguments) -> int:
    """Send what the tracking server lacks."""
    from strop.stages.track import sync as send

    done = send(_plan_of(arguments), arguments.results)
    print(f"strop: {done.sent} runs sent, {done.present} were there, {done.failed} failed{done.reason_suffix}")
    return 1 if done.failed else 0


def ui(arguments: Arguments) -> int:
    """Serve the embedded store's UI."""
    from strop.tracking import ui_command

    command = ui_command(arguments.results, arguments.port)
    print(f"strop: http://127.0.0.1:{arguments.port} (Ctrl-C ends it)", file=sys.stderr)
    return subprocess.call(command)


def repeat(arguments: Arguments) -> int:
    """Do one step again under the same limits, and show what it printed."""
    from strop.plan import load_plan
    from strop.supervise import run_step

    step = _find_step(arguments.step, arguments.results, load_plan)
    manifest = run_step(step, results=arguments.results, project=project_folder())
    if manifest.log:
        print(Path(manifest.log).read_text(encoding="utf-8", errors="replace"))
    print(f"{manifest.key} {manifest.option}: {manifest.status} in {manifest.seconds:.1f} s {manifest.error or ''}")
    return 0 if manifest.status == "ok" else 1


def _find_step(key: str, results: Path, load: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    known: set[str] = set()
    for path in sorted((results / "plans").glob("*.json"), key=os.path.getmtime, reverse=True):
        steps: dict[str, Any] = load(path)["steps"]
        if key in steps:
            found: dict[str, Any] = steps[key]
            return found
        known |= set(steps)
    raise StropError(f"{key}: no plan in {results}/plans has this step; {nearest(key, known)}")


COMMANDS: dict[str, Callable[[Arguments], int]] = {
    "doctor": doctor,
    "plan": plan,
    "run": run,
    "best": best,
    "compare": compare,
    "explain": explain,
    "sync": sync,
    "ui": ui,
    "repeat": repeat,
}

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    sys.exit(main())
