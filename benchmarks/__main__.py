"""`python -m benchmarks [NAME...] [--quick] [--write]`: run them, one after the other, and print what they measured."""

from __future__ import annotations

import argparse
import dataclasses
import os
import time

from benchmarks import document, machine
from benchmarks.question import NAMES, OPTIONAL, ask
from benchmarks.result import as_text


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="What torchreel costs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which; if none is named, {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that they work: no numbers to quote")
    parser.add_argument("--write", action="store_true", help="put the results into results.json and on their pages")
    options = parser.parse_args()
    every = (*NAMES, *OPTIONAL)
    unknown = set(options.names) - set(every)
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}: choose from {', '.join(every)}")
    if options.quick and options.write:
        parser.error("what --quick measures is not worth writing down: leave out one of --quick and --write")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it tells of every start and stop
    for name in options.names or NAMES:
        start, where = time.perf_counter(), machine.describe()
        question, results = ask(name, options.quick)
        if options.quick:  # a verdict would be a throw of dice
            results = [dataclasses.replace(result, goal=None) for result in results]
        print(f"{name}: {question}\n\n{as_text(results)}\n({time.perf_counter() - start:.0f} s)\n", flush=True)
        if where != machine.describe():
            print(f"torchreel was changed or built anew while {name} ran: this is worth nothing.\n", flush=True)
        elif options.write:
            document.write(name, results, where)


if __name__ == "__main__":
    main()
