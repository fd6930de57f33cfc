"""The build: roots and perhaps a reel -> a site. A second run reads and writes only what changed.

    scan ──► read ──► resolve ──► tables ──► costs ──► pages of files ──► indices, search
             (a file   (with all   (rows of    (of the
              alone)    files)      files)      reel)

Files are read, resolved and written by the processes of `pool`; the rest is done here. What the next run needs to know
is in `state`; `dependents` says which files a change of others concerns.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchreel._collector import collector_paused
from torchreel._version import __version__
from torchreel.atlas import keywords, tree
from torchreel.atlas.generate import dependents, keyword_index, state
from torchreel.atlas.generate.pool import Pool, pool_of
from torchreel.atlas.generate.reader import Facts, Resolved, Task, names_of
from torchreel.atlas.generate.state import KeywordIndex, Record, State
from torchreel.atlas.model import Link
from torchreel.atlas.read import LOOKED_FOR
from torchreel.atlas.read.languages import CPP, PYTHON
from torchreel.atlas.site import paths
from torchreel.atlas.site.facts import Site
from torchreel.atlas.site.output import remove, write_text
from torchreel.atlas.symbols import MOST_FILES, FileNames, module_names
from torchreel.errors import AtlasError, OptionError

if TYPE_CHECKING:
    from torchreel.atlas.costs import RunCosts
    from torchreel.atlas.generate.contexts import Contexts
    from torchreel.atlas.generate.rows import Merged
    from torchreel.atlas.generate.run import Run
    from torchreel.atlas.operators import Operators
    from torchreel.reel import Reel

ABOUT = "atlas.json"
Progress = Callable[[str, int, int], None]
"""What is being done, how much of it is done, and how much there is."""


@dataclass
class Built:
    """What a run did."""

    site: Path
    files: int
    read: int
    written: int
    """Files of the site that were not there before, or were different."""
    removed: int
    left_out: list[str] = field(default_factory=list)
    """A sentence for each source that could not be read."""


def build(
    output: str | os.PathLike[str],
    reel: Reel | str | os.PathLike[str] | None = None,
    sources: Mapping[str, str | os.PathLike[str]] | None = None,
    *,
    torch: bool = False,
    exclude: Sequence[str] = (),
    executed: bool = False,
    jobs: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Built:
    """Write a site about source trees into the folder `output`, with what a run cost if a reel is given.

    `sources` are folders by the names that they have in the site; without any, the folder of the script that the reel
    recorded. `torch` adds the Python sources of the torch that is installed. `exclude` are patterns of paths or names
    to leave out. `executed` keeps only files that the run entered. `force` makes everything anew, and allows a folder
    that holds other files.
    """
    run = _opened(reel) if reel is not None else None
    if executed and run is None:
        raise OptionError("executed keeps the files that a run entered: give the reel of one.")
    roots = tree.roots_of(_sources(run, sources, torch))
    is_old = (Path(output) / ABOUT).is_file()
    site = _prepared(Path(output), roots, force)
    found = tree.scan(roots, site, exclude)
    if executed and run is not None:
        found.sources = [source for source in found.sources if run.entered(source.absolute)]
    if len(found.sources) >= MOST_FILES:
        raise AtlasError(f"There are {len(found.sources):,} files: an atlas has at most {MOST_FILES:,}.")
    made_with = _made_with(roots, run)
    with collector_paused():
        before = State.empty(made_with) if force else state.load(site, made_with)
    with collector_paused():  # what is made of the files is kept, and is much
        return _Build(site, is_old, found, run, before, jobs or os.cpu_count() or 1, progress or _silent).build()


def _opened(reel: Reel | str | os.PathLike[str]) -> Run:
    """Without a reel nothing that reads one is imported: that takes longer than a second run."""
    from torchreel.atlas.generate.run import opened_run

    return opened_run(reel)


def _silent(what: str, done: int, of: int) -> None:
    pass


def _sources(
    run: Run | None, sources: Mapping[str, str | os.PathLike[str]] | None, torch: bool
) -> dict[str, str | os.PathLike[str]]:
    found = dict(sources or {})
    if not found and run is not None:
        found = run.own_source()
    if torch:
        from torchreel.atlas.installed import torch_sources

        found.setdefault("torch", torch_sources())
    if not found:
        raise OptionError("There is nothing to read: name a folder with --source, or a reel.")
    return found


def _made_with(roots: Sequence[tree.Root], run: Run | None) -> dict[str, str]:
    named = {f"root {root.name}": str(root.directory) for root in roots}
    return {**named, "reel": run.key if run is not None else ""}


def _prepared(site: Path, roots: Sequence[tree.Root], force: bool) -> Path:
    """The folder of the site; an AtlasError if it holds something else, or is a source itself."""
    resolved = site.resolve()
    for root in roots:
        if resolved == root.directory:
            raise AtlasError(f"{site} is the source {root.name!r} itself: name another folder for the site with -o.")
        if (root.directory / ABOUT).exists():
            raise AtlasError(f"{root.directory} is a site of torchreel, not a source: name the folder of the sources.")
    if site.exists() and not site.is_dir():
        raise AtlasError(f"{site} is not a folder: name a folder for the site with -o.")
    if site.is_dir() and any(site.iterdir()) and not (site / ABOUT).exists() and not force:
        raise AtlasError(f"{site} holds other files: name an empty folder, or allow it with --force.")
    site.mkdir(parents=True, exist_ok=True)
    if not (site / ABOUT).exists():  # of a run that is ended before its time the next one knows that the folder is ours
        write_text(site, ABOUT, json.dumps({"format": state.FORMAT, "complete": False}) + "\n")
    return site


class _Build:
    """One run, from the files that are there to the site."""

    def __init__(
        self,
        site: Path,
        is_old: bool,
        found: tree.Tree,
        run: Run | None,
        before: State,
        jobs: int,
        progress: Progress,
    ) -> None:
        self.site, self.is_old, self.tree, self.run, self.before = site, is_old, found, run, before
        self.jobs, self.progress = jobs, progress
        self.costs: RunCosts | None = None
        self.operators: Operators
        self.first = not before.files
        self.old = {record.id: record for record in before.files}
        self.records = dict(self.old)
        self.left_out = list(found.left_out)
        self.facts: dict[int, Facts] = {}
        self.resolved: dict[int, Resolved] = {}
        self.written: list[str] = []
        self.counts: dict[str, int] = {}
        self.keywords = KeywordIndex()
        self.split: frozenset[str] = frozenset()

    def build(self) -> Built:
        self.progress("Looking for files", 0, 0)
        changed, removed = self._compare()
        if not self.first and not changed and not removed:
            if self.restamped:
                state.save(self.site, self.before)
            return Built(self.site, len(self.records), 0, 0, 0, self.left_out)
        from torchreel.atlas.generate.rows import Fresh

        self.fresh = Fresh()
        pool = pool_of(self.site, self.jobs, self.size)
        try:
            self._read(pool, changed)
            self._know(pool, [task.id for task in changed], removed)
            self._resolve(pool)
            merged = self._tables(removed)
            contexts = self._pages(pool)
        finally:
            pool.close()
        self._remove(removed)
        self._finish(merged, contexts, removed)
        count = len(self.written)
        return Built(self.site, len(self.records), len(self.facts), count, len(removed), self.left_out)

    # What changed.

    def _compare(self) -> tuple[list[Task], list[int]]:
        """The files to read, the largest first, and those that are gone."""
        known = {record.key: record for record in self.before.files}
        next_id = max((record.id for record in self.before.files), default=-1) + 1
        self.tasks: dict[int, Task] = {}
        self.stamps: dict[int, tuple[int, ...]] = {}
        self.restamped = False
        packages = self._packages()
        sized: list[tuple[int, Task]] = []
        for source in self.tree.sources:
            record = known.pop((source.root.name, source.path), None)
            number = record.id if record is not None else next_id
            next_id += record is None
            task = Task(number, source.root.name, str(source.root.directory), source.path, source.language)
            self.tasks[number] = task
            self.stamps[number] = source.stamp
            modules = self._modules(task, packages)
            if record is None or record.names.modules != modules or not self._is_same(source, record):
                sized.append((-source.size, task))
        self.size = -sum(size for size, _ in sized)
        sized.sort(key=lambda one: (one[0], one[1].id))
        return [task for _, task in sized], [record.id for record in known.values()]

    def _is_same(self, source: tree.Source, record: Record) -> bool:
        """Whether a file has the bytes that it had: they are read only where the file system does not say so."""
        if source.stamp and source.stamp == record.stamp:
            return True
        data = tree.content(source)
        if data is None or tree.digest(data) != record.sha256:
            return False
        self.restamped |= record.stamp != source.stamp
        record.stamp = source.stamp
        return True

    def _read(self, pool: Pool, tasks: Sequence[Task]) -> None:
        packages = self._packages()

        def each(task: Task, facts: Facts | None) -> None:
            self.progress("Reading", len(self.facts), len(tasks))
            if facts is None:
                self.left_out.append(f"{task.path}: it can no longer be read")
                self.tasks.pop(task.id)
                self.records.pop(task.id, None)
                return
            self.facts[task.id] = facts
            if facts.rows is not None:
                self.fresh.add_symbols(task.id, facts.doc, facts.rows)
            facts.rows, facts.doc = None, ""  # these are in a table now
            self.records[task.id] = _record(task, facts, self._modules(task, packages), self.stamps[task.id])

        pool.read(tasks, each)

    def _packages(self) -> dict[str, frozenset[str]]:
        """Of each root, the folders that are packages of Python."""
        found: dict[str, set[str]] = {root.name: set() for root in self.tree.roots}
        for source in self.tree.sources:
            folder, _, name = source.path.rpartition("/")
            if name in ("__init__.py", "__init__.pyi"):
                found[source.root.name].add(folder)
        return {name: frozenset(folders) for name, folders in found.items()}

    @staticmethod
    def _modules(task: Task, packages: Mapping[str, frozenset[str]]) -> list[str]:
        """By which names it can be imported: a folder that becomes a package gives others to all files below it."""
        if task.language != PYTHON:
            return []
        return module_names(task.path, packages[task.root], task.directory.rpartition("/")[2])

    # What the names mean.

    def _know(self, pool: Pool, changed: Sequence[int], removed: Sequence[int]) -> None:
        """Tell the readers what all files define, when everything is read that what changed concerns."""
        for file in removed:
            self.records.pop(file, None)
        gone = [self.old[file].details().terms for file in {*changed, *removed} if file in self.old]
        came = [self.facts[file].terms for file in changed if file in self.facts]
        self.counts = dependents.counted(self.before.counts, gone, came)
        if not self.first:
            concerned = self._concerned(changed, removed, [*gone, *came])
            self._read(pool, [self.tasks[file] for file in sorted(concerned)])
        names = [record.names for _, record in sorted(self.records.items())]
        pool.know(names, self.counts, len(self.records))

    def _concerned(self, changed: Sequence[int], removed: Sequence[int], terms: Iterable[list[str]]) -> set[int]:
        others = self.records.keys() - set(changed)
        pairs = [(_names(self.old.get(file)), _names(self.records.get(file))) for file in (*changed, *removed)]
        everything = any(dependents.stars(old) != dependents.stars(new) for old, new in pairs)
        if everything or keywords.rarity(1, len(self.old)) != keywords.rarity(1, len(self.records)):
            return set(others)
        names = {name for old, new in pairs for name in dependents.changed_names(old, new)}
        words = {word for one in terms for word in one}
        names |= dependents.rarer(self.before.counts, self.counts, words, len(self.records))
        came_or_gone = [one for pair in pairs for one in pair if one is not None and None in pair]
        found = dependents.users(self.old, names)
        if came_or_gone:
            found |= dependents.importers((self.records[file] for file in others), came_or_gone)
        return found & others

    def _resolve(self, pool: Pool) -> None:
        """Find what names mean. Files of whose pages that changes something are read and resolved, too."""
        self._resolve_read(pool)
        if self.first:
            return
        near: set[int] = set()
        for file in {*self.facts, *(self.old.keys() - self.records.keys())}:
            near |= dependents.neighbours(self.old.get(file), self.records.get(file))
        more = sorted((near & self.records.keys()) - self.facts.keys())
        if more:
            self._read(pool, [self.tasks[file] for file in more])
            self._resolve_read(pool)

    def _resolve_read(self, pool: Pool) -> None:
        def each(resolved: Resolved) -> None:
            self.progress("Resolving names", len(self.resolved), len(self.facts))
            facts = self.facts[resolved.id]
            self.resolved[resolved.id] = resolved
            self.fresh.add_resolved(resolved, facts.imports)
            _complete(self.records[resolved.id], facts, resolved)
            # Only the rows are large, and these are in a table now.
            resolved.names, resolved.name, resolved.line, resolved.column = [], b"", b"", b""
            resolved.symbol, resolved.how = b"", b""

        pool.resolve(each)

    # What is written.

    def _tables(self, removed: Sequence[int]) -> Merged:
        from torchreel.atlas.generate.rows import Merged

        self.progress("Writing tables", 0, 0)
        state.forget(self.site)
        gone = {*self.facts, *removed, *(self.old.keys() - self.records.keys())}
        merged = Merged(self.site, gone, self.fresh, self.records, self.first)
        self._join(merged)
        merged.write(self.costs, self.operators)
        return merged

    def _join(self, merged: Merged) -> None:
        """Join the files with the run, and both with the operators of torch."""
        from torchreel.atlas.operators import operators

        registrations = [(file, one) for file, record in sorted(self.records.items()) for one in record.registrations]
        cpp = {file for file, one in self.records.items() if one.names.language in CPP}
        definitions = merged.kernels(cpp) if cpp and (registrations or self.run is not None) else {}
        if self.run is None:
            self.operators = operators(None, registrations, definitions)
            return
        from torchreel.atlas.costs import RunCosts
        from torchreel.atlas.kernel_costs import kernel_costs
        from torchreel.atlas.operator_costs import operator_costs

        self.progress("Adding up what the run cost", 0, 0)
        reel = self.run.reel
        self.operators = operators(operator_costs(reel), registrations, definitions)
        self.costs = RunCosts(reel, self._paths(), merged.symbols, self._folders())
        self.costs.add_kernels(*kernel_costs(reel, self.operators.kernels()))

    def _paths(self) -> dict[str, int]:
        """The files by the paths under which the reel may name them."""
        roots = {root.name: root for root in self.tree.roots}
        found: dict[str, int] = {}
        for file, record in self.records.items():
            root, path = record.key
            for folder in (roots[root].named, str(roots[root].directory)):
                found[f"{folder.rstrip('/')}/{path}"] = file
        return found

    def _folders(self) -> dict[Hashable, set[int]]:
        """The files below each folder."""
        found: dict[Hashable, set[int]] = {}
        for file, record in self.records.items():
            root, path = record.key
            while path:
                path = path.rpartition("/")[0]
                found.setdefault((root, path), set()).add(file)
        return found

    def _index_keywords(self) -> None:
        """Put the keywords of files that were read in the place of those that they had."""
        touched = {*self.facts, *(self.old.keys() - self.records.keys())}
        before = [self.old[file] for file in sorted(touched & self.old.keys())]
        after = [self.records[file] for file in sorted(touched & self.records.keys())]
        self.keywords, self.words = keyword_index.edited(self.before.keywords, before, after)
        self.split = keyword_index.split_letters(self.keywords)

    def _pages(self, pool: Pool) -> Contexts:
        from torchreel.atlas.generate.contexts import Contexts

        self._index_keywords()
        if not self.first and self.split != frozenset(self.before.split):
            self._read_rest(pool)
        contexts = Contexts(self.records, self.facts, self.tree.roots, self.costs, self.operators)
        done = 0

        def each(written: list[str]) -> None:
            nonlocal done
            done += 1
            self.written += written
            self.progress("Writing pages", done, len(self.facts))

        pool.pages((contexts.of(file) for file in sorted(self.facts)), self._about(), self.split, each)
        return contexts

    def _about(self) -> Site:
        """What all pages share."""
        pages = [Link("Operators", "ops/index.html"), Link("Keywords", f"keywords/{keyword_index.LETTERS[0]}.html")]
        if self.run is not None:
            pages.insert(0, Link("Tour", "tour.html"))
        return Site(" · ".join(root.name for root in self.tree.roots), pages, LOOKED_FOR)

    def _read_rest(self, pool: Pool) -> None:
        """The addresses of keywords have changed: every page is written."""
        rest = sorted(self.records.keys() - self.facts.keys())
        self._read(pool, [self.tasks[file] for file in rest])
        self._resolve_read(pool)

    def _remove(self, removed: Sequence[int]) -> None:
        for file in {*removed, *(self.old.keys() - self.records.keys())}:
            root, path = self.old[file].key
            remove(self.site, paths.file_page(root, path))
            remove(self.site, paths.twin(root, path))
        if self.first and self.is_old:
            self._remove_unknown()

    def _remove_unknown(self) -> None:
        """Of a site whose last run is not known: pages of files and folders that are not there, or no more."""
        there = set()
        for record in self.records.values():
            root, path = record.key
            there |= {paths.file_page(root, path), paths.twin(root, path)}
            while path:
                path = path.rpartition("/")[0]
                there.add(paths.folder_page(root, path))
        there |= {paths.folder_page(root.name, "") for root in self.tree.roots}
        for pattern in ("files/**/*.html", "folders/**/*.html", "md/**/*.md"):
            for path in [one.relative_to(self.site).as_posix() for one in self.site.glob(pattern)]:
                if path not in there:
                    remove(self.site, path)

    def _finish(self, merged: Merged, contexts: Contexts, removed: Sequence[int]) -> None:
        from torchreel.atlas.generate.indices import Indices
        from torchreel.atlas.generate.line_links import Lines

        self.progress("Writing indices", 0, 0)
        touched = {*self.facts, *removed, *(self.old.keys() - self.records.keys())}
        roots = self.tree.roots
        indices = Indices(self.site, self._about(), roots, self.records, self.costs, merged, self.keywords, self.split)
        words = None if self.first or self.split != frozenset(self.before.split) else self.words
        indices.write(self.old, words, touched, contexts.users)
        lines = Lines(self.records, self.tasks, self._paths())
        indices.write_front(self.run, self.operators, lines)
        if self._operators_may_differ(touched):
            indices.write_operators(self.run is not None, self.operators, lines)
        self.written += indices.written
        about = {
            "format": state.FORMAT,
            "complete": True,
            "version": __version__,
            "roots": {root.name: str(root.directory) for root in self.tree.roots},
            "reel": self.run.about if self.run is not None else None,
            "files": {"/".join(record.key): record.sha256 for _, record in sorted(self.records.items())},
        }
        if write_text(self.site, ABOUT, json.dumps(about, indent=1) + "\n"):
            self.written.append(ABOUT)
        made_with = _made_with(self.tree.roots, self.run)
        files = [record for _, record in sorted(self.records.items())]
        kept = State(state.FORMAT, __version__, made_with, sorted(self.split), self.counts, self.keywords, files)
        state.save(self.site, kept)

    def _operators_may_differ(self, touched: Collection[int]) -> bool:
        """Whether what these files register, or the kernels in them, may be other than before."""
        if self.first or self.run is not None:
            return True
        pairs = [(self.old.get(file), self.records.get(file)) for file in touched]
        return any(
            old is None or new is None or old.registrations != new.registrations or new.names.language in CPP
            for old, new in pairs
        )


def _names(record: Record | None) -> FileNames | None:
    return record.names if record is not None else None


def _record(task: Task, facts: Facts, modules: list[str], stamp: tuple[int, ...]) -> Record:
    return Record(
        names_of(task, facts, modules),
        facts.sha256,
        facts.bytes,
        facts.lines,
        facts.first_sentence,
        facts.errors,
        [],
        [],
        {},
        facts.registrations,
        b"",
        stamp,
        msgspec.Raw(b""),
    )


def _complete(record: Record, facts: Facts, resolved: Resolved) -> None:
    """Put into a record what is known since its names are resolved."""
    record.targets, record.links = resolved.targets, resolved.links
    record.words = [one.keyword for one in resolved.keywords[:5]]
    record.used = resolved.used
    record.rest = msgspec.Raw(msgspec.msgpack.encode([facts.terms, resolved.keywords, facts.entries]))  # a `Rest`
    facts.entries = msgspec.Raw(b"")
