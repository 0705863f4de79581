"""The commands: turn what was typed into calls, and errors into exit codes; no logic of its own.

The composition root, and the only module that sees both `ingest` and `queries`. Heavy imports stay
inside command bodies, so that `--help` and completion answer at once.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from ingest.pipeline import Plan, Progress, Summary
    from ingest.store import Store
    from matcher.mask import Level
    from queries.contrast import Contrast
    from queries.diagnosis import Diagnosis
    from queries.encyclopedia import Book
    from queries.report import Report, Result


class _Commands(TyperGroup):
    """Maps our errors to exit code 2 in one place, for `main` and for tests alike."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; print an error as one message, end quietly on a closed pipe."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            typer.echo("interrupted; run the same command again to finish", err=True)
            raise typer.Exit(130) from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            name = f"{error.filename}: " if error.filename else ""
            typer.echo(f"error: {name}{reason}: check the path, its rights and the disk", err=True)
            raise typer.Exit(2) from None
        except Exception as error:
            if _USER_ERRORS.isdisjoint(kind.__name__ for kind in type(error).__mro__):
                raise
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2) from None


# By name: their modules are heavy, and this runs before any of them is needed.
_USER_ERRORS = frozenset(
    {
        "CatalogueError",
        "CountError",
        "DiscoverError",
        "LayoutError",
        "MappingError",
        "ReportError",
        "StoreError",
        "UsageError",
    }
)

app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    rich_markup_mode=None,  # rich would double the time that --help takes, to 170 ms
    help="Find what failed first in the archived logs of a training fleet, and ask why in SQL.",
    epilog="Exit codes: 0 done; 1 some inputs failed or a check found problems; 2 usage, "
    "catalogue, report or database error; 130 interrupted.",
)
failures_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The encyclopedia of failures."
)
app.add_typer(failures_app, name="failures")

DEFAULT_DB = Path("firstfault.duckdb")


class Format(StrEnum):
    """Forms of a result."""

    table = "table"
    json = "json"
    csv = "csv"
    parquet = "parquet"
    markdown = "markdown"
    html = "html"
    svg = "svg"
    png = "png"


class DiagnosisFormat(StrEnum):
    """Forms of a diagnosis."""

    text = "text"
    json = "json"
    sarif = "sarif"
    markdown = "markdown"


class PageFormat(StrEnum):
    """Forms of a page of the encyclopedia."""

    text = "text"
    markdown = "markdown"
    json = "json"


class MaskLevel(StrEnum):
    """How much is masked before it is stored."""

    default = "default"
    strict = "strict"

    @property
    def level(self) -> Level:
        """The level's name as the masker knows it."""
        return "strict" if self is MaskLevel.strict else "default"


class Kind(StrEnum):
    """What `import` reads."""

    sacct = "sacct"
    k8s_events = "k8s-events"
    k8s_pods = "k8s-pods"
    flight_recorder = "flight-recorder"
    nodes = "nodes"
    csv = "csv"


class Metrics(StrEnum):
    """How many of the lines that every step prints become rows."""

    off = "off"
    sampled = "sampled"
    full = "full"


Paths = Annotated[
    list[str], typer.Argument(help="Files, directories, archives, globs, or - for stdin.")
]
Db = Annotated[
    Path,
    typer.Option("--db", envvar="FIRSTFAULT_DB", help="The DuckDB database."),
]
Cluster = Annotated[str | None, typer.Option(help="Cluster that the files belong to.")]
Layout = Annotated[
    str | None,
    typer.Option(help="What the paths say, such as '{cluster}/{job}/{host}/rank_{rank}.log'."),
]
Tz = Annotated[str, typer.Option("--tz", help="Zone of times that name none.")]
CatalogueDir = Annotated[
    Path | None, typer.Option("--catalogue", help="Directory of failures to add.")
]
OnlyCatalogue = Annotated[
    Path | None, typer.Option("--only-catalogue", help="Directory of failures to use alone.")
]
EveryMatch = Annotated[bool, typer.Option("--every-match", help="A row a match: fold nothing.")]
MetricsOption = Annotated[
    Metrics, typer.Option(help="Lines that every step prints: a row a MiB, a minute, or each.")
]
MaskOption = Annotated[MaskLevel, typer.Option(help="What to mask before it is stored.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="Write to a file instead of stdout.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="Form of the result.")]
PageOption = Annotated[PageFormat, typer.Option("--format", help="Form of the page.")]
Component = Annotated[
    list[str] | None,
    typer.Option(
        help="Only this component.",
        autocompletion=lambda incomplete: _complete("component", incomplete),
    ),
]
Category = Annotated[
    list[str] | None,
    typer.Option(
        help="Only this category.",
        autocompletion=lambda incomplete: _complete("category", incomplete),
    ),
]
Severity = Annotated[
    list[str] | None,
    typer.Option(
        help="Only this severity.",
        autocompletion=lambda incomplete: _complete("severity", incomplete),
    ),
]
Tag = Annotated[
    list[str] | None,
    typer.Option(
        help="Only with this tag.", autocompletion=lambda incomplete: _complete("tag", incomplete)
    ),
]
Phase = Annotated[
    list[str] | None,
    typer.Option(
        help="Only of this phase of a run.",
        autocompletion=lambda incomplete: _complete("phase", incomplete),
    ),
]
Parameters = Annotated[
    list[str] | None, typer.Option("-p", "--parameter", help="KEY=VALUE of the report; repeatable.")
]


@app.command()
def ingest(
    paths: Paths,
    db: Db = DEFAULT_DB,
    cluster: Cluster = None,
    layout: Layout = None,
    tz: Tz = "UTC",
    since: Annotated[
        str | None, typer.Option(help="Leave out files last written before this time.")
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            min=0, max=1024, help="Worker processes; 0 is one a core.", show_default="cores"
        ),
    ] = 0,
    catalogue: CatalogueDir = None,
    only_catalogue: OnlyCatalogue = None,
    metrics: MetricsOption = Metrics.off,
    every_match: EveryMatch = False,
    mask: MaskOption = MaskLevel.default,
    rescan: Annotated[bool, typer.Option("--rescan", help="Read unchanged files again.")] = False,
    as_json: Json = False,
) -> None:
    """Scan logs into the database. Unchanged files are skipped, changed ones replaced."""
    from ingest import pipeline

    plan = pipeline.plan(
        paths,
        cluster=cluster,
        layout=layout,
        tz=tz,
        since=since,
        workers=workers,
        catalogues=_catalogues(catalogue, only_catalogue),
        metrics=metrics.value,
        every_match=every_match,
        mask=mask.level,
        rescan=rescan,
    )
    with _store(db) as store, _progress() as progress:
        summary = pipeline.ingest(store, plan, progress)
    _tell(summary, as_json)
    raise typer.Exit(1 if summary.failed or summary.truncated else 0)


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="An export, or - for stdin; compressed ones, too.")],
    kind: Annotated[
        Kind | None, typer.Option("--as", help="What it is; by default its content tells.")
    ] = None,
    mapping: Annotated[
        str | None,
        typer.Option(
            help="For --as csv (CSV, TSV, JSON, Parquet): a TOML file, or a shipped mapping's name."
        ),
    ] = None,
    cluster: Cluster = None,
    tz: Tz = "UTC",
    db: Db = DEFAULT_DB,
    as_json: Json = False,
) -> None:
    """Put what a scheduler, an inventory or a trace tells into the database.

    A row replaces the one of the same job, node or event; bad rows are told and left out.
    """
    import json

    from ingest import imports

    with _store(db) as store:
        summary = imports.run(
            store, file, kind=kind and kind.value, mapping=mapping, cluster=cluster, tz=tz
        )
    for message in summary.messages:
        typer.echo(message, err=True)
    typer.echo(json.dumps(summary._asdict()) if as_json else summary.text(), err=not as_json)
    raise typer.Exit(1 if summary.bad else 0)


@app.command()
def scan(
    paths: Paths,
    cluster: Cluster = None,
    layout: Layout = None,
    tz: Tz = "UTC",
    catalogue: CatalogueDir = None,
    only_catalogue: OnlyCatalogue = None,
    metrics: MetricsOption = Metrics.off,
    every_match: EveryMatch = False,
    mask: MaskOption = MaskLevel.default,
    as_json: Json = False,
) -> None:
    """Print the events of logs, file by file; no database."""
    from ingest import pipeline
    from queries import render

    plan = pipeline.plan(
        paths,
        cluster=cluster,
        layout=layout,
        tz=tz,
        workers=1,
        catalogues=_catalogues(catalogue, only_catalogue),
        metrics=metrics.value,
        every_match=every_match,
        mask=mask.level,
    )
    failed = 0
    for rows in pipeline.results(plan):
        paths_ = {row.file_id: row.path for row in rows.files}
        for row in rows.files:
            if row.status in ("failed", "truncated"):
                failed += 1
                typer.echo(str(row.error), err=True)
        for batch in rows.events:
            for event in batch.to_pylist():
                event["path"] = paths_[event["file_id"]]
                typer.echo(render.event_json(event) if as_json else render.event_line(event))
    raise typer.Exit(1 if failed else 0)


@app.command()
def diagnose(
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Files, directories, archives, globs, or - for stdin."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Logs of a healthy run to hold it against.")
    ] = None,
    format_: Annotated[
        DiagnosisFormat, typer.Option("--format", help="Form of the diagnosis.")
    ] = DiagnosisFormat.text,
    evidence: Annotated[
        int, typer.Option(min=0, max=120, help="Lines before the decisive one in text.")
    ] = 5,
    fail_on_failure: Annotated[
        bool, typer.Option("--fail-on-failure", help="Exit 1 if a run failed.")
    ] = False,
    db: Annotated[
        Path | None, typer.Option("--db", help="A database that has the run, instead of its files.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", help="Which run or job; by default the first that failed."),
    ] = None,
    cluster: Cluster = None,
    layout: Layout = None,
    tz: Tz = "UTC",
    workers: Annotated[
        int,
        typer.Option(
            min=0, max=1024, help="Worker processes; 0 is one a core.", show_default="cores"
        ),
    ] = 0,
    catalogue: CatalogueDir = None,
    only_catalogue: OnlyCatalogue = None,
    mask: MaskOption = MaskLevel.default,
    output: Output = None,
) -> None:
    """Tell what broke a run: what, where, why, the proof, and what to do.

    Nothing leaves the machine; the database made of the files is deleted at the end.
    """
    from ingest import pipeline

    if bool(paths) == bool(db):
        raise UsageError("give the paths of a run, or --db and --run: one of them")
    if against is not None and (db or "-" in (against, *(paths or ()))):
        raise UsageError("--against reads files twice: give files, not - or --db")

    def plan(arguments: list[str]) -> pipeline.Plan:
        return pipeline.plan(
            arguments,
            cluster=cluster,
            layout=layout,
            tz=tz,
            workers=workers,
            catalogues=_catalogues(catalogue, only_catalogue),
            mask=mask.level,
        )

    if db is not None:
        found, contrast, lost = _diagnose_stored(db, run), None, 0
    else:
        other = plan([against]) if against is not None else None
        found, contrast, lost = _diagnose_files(plan(paths or []), other, run)
    _tell_diagnosis(found, contrast, format_, evidence, output)
    failed = fail_on_failure and found.verdict == "failure"
    raise typer.Exit(1 if failed or lost else 0)


@app.command()
def report(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Which report, or all; without a name they are listed.",
            autocompletion=lambda incomplete: _complete_reports(incomplete),
        ),
    ] = None,
    db: Db = DEFAULT_DB,
    parameters: Parameters = None,
    format_: FormatOption = Format.table,
    output: Output = None,
    fail_if_rows: Annotated[
        bool, typer.Option("--fail-if-rows", help="Exit 1 if the report has rows.")
    ] = False,
) -> None:
    """Run a report on the database."""
    from queries import report as reports

    if name is None:
        for one in reports.all_reports():
            typer.echo(f"{one.name:<16} {one.title}")
        return
    chosen = reports.all_reports() if name == "all" else [reports.load(name)]
    results = _run(db, chosen, _arguments(parameters), lenient=name == "all")
    _emit(results, format_, output)
    raise typer.Exit(1 if fail_if_rows and any(r.table.num_rows for r in results) else 0)


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="A SELECT over the tables of `firstfault schema`.")],
    db: Db = DEFAULT_DB,
    format_: FormatOption = Format.table,
    output: Output = None,
) -> None:
    """Ask the database in SQL, read only."""
    from ingest import schema
    from queries import report as reports

    with reports.connect(db, schema.ddl(), schema.VERSION) as connection:
        result = reports.query(connection, query)
    _emit([result], format_, output)


@app.command()
def verify(
    name: Annotated[
        str,
        typer.Argument(
            metavar="FAILURE",
            help="A failure or signature.",
            autocompletion=lambda incomplete: _complete_failures(incomplete),
        ),
    ],
    change: Annotated[
        str,
        typer.Option(help="When or what changed: a time, or a version as in 'deepspeed >= 0.18'."),
    ],
    db: Db = DEFAULT_DB,
    trigger: Annotated[
        str,
        typer.Option(
            help="What may trigger it: auto, checkpoint-begin, save, attempt, gpu-hour, "
            "or a failure or signature whose lines count."
        ),
    ] = "auto",
    control: Annotated[
        str | None, typer.Option(help="A cluster that did not get the change.")
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="Only this cluster, and the control.")] = None,
    as_json: Json = False,
) -> None:
    """Tell whether a failure is gone since a change, or just had no chance to show.

    Exit 0 whatever the verdict.
    """
    from ingest import schema as tables
    from matcher import catalogue as catalogues
    from queries import render
    from queries import report as reports
    from queries import verify as fixes

    known = {
        id_: failure.id
        for failure in catalogues.load().failures
        for id_ in (*(signature.id for signature in failure.signatures), failure.id)
    }
    with reports.connect(db, tables.ddl(), tables.VERSION) as connection:
        found = fixes.check(
            connection,
            name,
            change,
            known=known,
            trigger=trigger,
            control=control,
            cluster=cluster,
        )
    _print(render.as_json(found.as_dict()) if as_json else found.text())


@failures_app.command("list")
def failures_list(
    component: Component = None,
    category: Category = None,
    severity: Severity = None,
    tag: Tag = None,
    phase: Phase = None,
    as_json: Json = False,
    catalogue: CatalogueDir = None,
) -> None:
    """List the failures that firstfault knows. An option given twice takes either value."""
    from queries import encyclopedia

    book = _book(catalogue)
    chosen = encyclopedia.choose(
        book,
        component=component or (),
        category=category or (),
        severity=severity or (),
        tag=tag or (),
        phase=phase or (),
    )
    if not chosen:
        typer.echo("no failure has all of that: leave an option out", err=True)
    _print(encyclopedia.entries_json(book, chosen) if as_json else encyclopedia.list_text(chosen))


@failures_app.command("show")
def failures_show(
    id_: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A failure, one of its signatures, or a tag that no other has.",
            autocompletion=lambda incomplete: _complete_failures(incomplete),
        ),
    ],
    format_: PageOption = PageFormat.text,
    as_json: Json = False,
    catalogue: CatalogueDir = None,
) -> None:
    """Show a failure: what it is, how to confirm, fix and verify it, then why it happens."""
    from queries import encyclopedia

    book = _book(catalogue)
    entry = encyclopedia.find(book, id_)
    _print(encyclopedia.page(book, entry, "json" if as_json else format_.value))


@failures_app.command("compare")
def failures_compare(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID",
            help="Failures; without any, those of the component.",
            autocompletion=lambda incomplete: _complete_failures(incomplete),
        ),
    ] = None,
    component: Component = None,
    format_: PageOption = PageFormat.text,
    as_json: Json = False,
    catalogue: CatalogueDir = None,
) -> None:
    """Put failures side by side, in the order of the phases of a run in which they show."""
    from queries import encyclopedia

    book = _book(catalogue)
    if not ids and not component:
        raise UsageError("nothing to compare: give ids, or --component NAME")
    chosen = encyclopedia.choose(book, component=component) if component else []
    chosen += [encyclopedia.find(book, word) for word in ids or ()]
    unique = list({entry.id: entry for entry in chosen}.values())
    _print(encyclopedia.compare(book, unique, "json" if as_json else format_.value))


@failures_app.command("check")
def failures_check(
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A catalogue that is used alone.")
    ] = None,
    catalogue: CatalogueDir = None,
) -> None:
    """Run every check on the catalogue: shape, patterns, examples."""
    from matcher import catalogue as catalogues
    from matcher import check

    if directory and catalogue:
        raise UsageError(
            "DIR is checked alone, --catalogue with the built-in one: give one of them"
        )
    try:
        loaded = catalogues.load(*_catalogues(catalogue, directory))
        issues = check.check(loaded)
    except catalogues.CatalogueError as error:
        issues = list(error.issues)
    for issue in issues:
        typer.echo(str(issue))
    if not issues:
        counts = (len(loaded.failures), "failure"), (len(loaded.signatures), "signature")
        told = ", ".join(f"{number} {noun}{'s' * (number != 1)}" for number, noun in counts)
        typer.echo(f"{told}: sound")
    raise typer.Exit(1 if issues else 0)


@failures_app.command("site")
def failures_site(
    output: Annotated[Path, typer.Option("-o", "--output", help="Directory of the site.")],
    db: Annotated[
        Path | None,
        typer.Option("--db", envvar="FIRSTFAULT_DB", help="Say how often it has seen each."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a directory that holds other files.")
    ] = False,
    catalogue: CatalogueDir = None,
) -> None:
    """Write the encyclopedia as pages that need no server: index, search, a page a failure."""
    import dataclasses

    from ingest import schema as tables
    from queries import encyclopedia, site
    from queries import report as reports

    book = _book(catalogue)
    if db:
        with reports.connect(db, tables.ddl(), tables.VERSION) as connection:
            book = dataclasses.replace(book, seen=encyclopedia.seen(connection))
        if not db.exists():
            typer.echo(f"{db}: no such database, so nothing was seen: check --db", err=True)
    written = site.write(output, site.pages(book), force=force)
    typer.echo(f"{output / site.INDEX}: {written.pages} pages, {written.removed} old ones removed")


@app.command()
def generate(
    directory: Annotated[Path, typer.Argument(help="Where to write the fleet.")],
    bytes_: Annotated[int, typer.Option("--bytes", help="About how much text.")] = 32_000_000,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 1,
    codec: Annotated[str, typer.Option(help="mixed, none, gzip, zstd, bz2, xz or lz4.")] = "mixed",
    runs: Annotated[int | None, typer.Option(help="How many runs.")] = None,
    history: Annotated[
        int, typer.Option(min=0, help="Runs of a past with known rates to add, with its meta/.")
    ] = 0,
    missing: Annotated[
        float, typer.Option(min=0, max=1, help="Share of rank files that are not there.")
    ] = 0.1,
    varied: Annotated[
        float, typer.Option(min=0, max=1, help="Share of decisive lines in other words.")
    ] = 0.2,
) -> None:
    """Write a made-up fleet with planted failures and their truth (truth.json)."""
    from ingest import fleet

    try:
        truth = fleet.generate(
            directory,
            bytes_=bytes_,
            seed=seed,
            codec=codec,
            runs=runs,
            history=history,
            missing=missing,
            varied=varied,
        )
    except (FileExistsError, ValueError) as error:
        raise UsageError(str(error)) from None
    typer.echo(f"{directory}: {truth.files} files, {truth.bytes:,} bytes, truth.json")


@app.command()
def demo(
    directory: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("demo"),
) -> None:
    """Make a small fleet, ingest it, print reports, write report.html."""
    import shutil

    from ingest import fleet, pipeline
    from queries import render
    from queries import report as reports

    logs, db, page = directory / "logs", directory / "fleet.duckdb", directory / "report.html"
    if (logs / "truth.json").exists():  # of the last demo
        shutil.rmtree(logs)
        db.unlink(missing_ok=True)
    typer.echo(f"1. a made-up fleet with planted failures in {logs}")
    fleet.generate(logs, bytes_=32_000_000, seed=1, codec="mixed", runs=None)
    typer.echo(f"2. firstfault ingest {logs} --db {db}")
    with _store(db) as store, _progress() as progress:
        summary = pipeline.ingest(store, pipeline.plan([str(logs)]), progress)
    _tell(summary, as_json=False)
    results = _run(db, reports.all_reports(), {}, lenient=True)
    failed = next(one for one in results if one.report.name == "first-failure").table.to_pylist()
    # The run that dragged most ranks along shows best what first and collateral mean.
    worst = max(failed, key=lambda row: row["collateral_ranks"], default={"job": ""})
    for number, (name, arguments) in enumerate(
        (
            ("coverage", {}),
            ("first-failure", {"job": str(worst["job"])}),
            ("co-occurrence", {"limit": "8"}),
        ),
        3,
    ):
        given = "".join(f" -p {key}={value}" for key, value in arguments.items())
        typer.echo(f"\n{number}. firstfault report {name}{given} --db {db}")
        _emit(_run(db, [reports.load(name)], arguments, lenient=False), Format.table, None)
    render.write(page, render.render(results, Format.html.value))
    typer.echo(f"\nall reports: {page}")


@app.command()
def schema(as_json: Json = False) -> None:
    """Print the tables and columns of the database."""
    import json

    from ingest import schema as tables

    rows = tables.dictionary()
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = None
    for row in rows:
        if row["table"] != table:
            table = row["table"]
            typer.echo(f"\n{table}")
        typer.echo(f"  {row['column']:<18} {row['type']:<22} {row['description']}")


@app.command()
def bench(
    path: Annotated[
        str | None, typer.Argument(help="Your own logs; without, a made-up fleet.")
    ] = None,
    by_failure: Annotated[
        bool, typer.Option("--by-failure", help="Name the failures that cost most; takes minutes.")
    ] = False,
    as_json: Json = False,
    catalogue: CatalogueDir = None,
) -> None:
    """Measure the matcher and the whole path from file to rows, on up to 256 MiB of your logs."""
    import json

    from ingest import measure

    figures = measure.measure(path, _catalogues(catalogue, None), by_failure)
    typer.echo(json.dumps(figures) if as_json else measure.text(figures))


@app.command()
def version() -> None:
    """Print the version."""
    import importlib.metadata

    typer.echo(f"firstfault {importlib.metadata.version('firstfault')}")


class UsageError(Exception):
    """What was typed makes no sense; the message says what would."""


def _catalogues(extra: Path | None, only: Path | None) -> list[Path]:
    from matcher.catalogue import BUILT_IN

    if extra and only:
        raise UsageError("--catalogue adds and --only-catalogue replaces: give one of them")
    return [only] if only else [BUILT_IN, extra] if extra else [BUILT_IN]


def _diagnose_stored(db: Path, run: str | None) -> Diagnosis:
    """The diagnosis of a run of a database."""
    from ingest import schema as tables
    from queries import diagnosis
    from queries import report as reports

    with reports.connect(db, tables.ddl(), tables.VERSION) as connection:
        return diagnosis.diagnose(connection, run)


def _diagnose_files(
    plan: Plan, against: Plan | None, run: str | None
) -> tuple[Diagnosis, Contrast | None, int]:
    """The diagnosis of files, what tells them from healthy ones, and how many could not be read.

    What is read lies in a private directory until then.
    """
    import tempfile
    from dataclasses import replace

    from ingest import pipeline, templates
    from queries import contrast as contrasts
    from queries import diagnosis, staging
    from queries import report as reports

    plan = plan.keyed()
    against = against and replace(against, key=plan.key)
    names = plan.names
    with tempfile.TemporaryDirectory(prefix="firstfault-") as private, _progress() as progress:
        with _store(Path(private) / "run.duckdb") as store:
            summary = pipeline.ingest(store, plan, progress)
            if run is None:
                together = _together(plan.paths)
                store.gather(names.renamer().text(together) if names else together)
                if names is not None:
                    store.rename(names)
            reports.prepare(store.connection)
            staging.begin(store.connection)
            found = diagnosis.diagnose(store.connection, run)
            if against is None:
                return found, None, summary.failed + summary.truncated
            with _store(Path(private) / "healthy.duckdb") as healthy:
                summary_ = pipeline.ingest(healthy, against, progress)
                first = found.root_cause.file if found.root_cause else None
                here, there = templates.count(plan, against)
                told = contrasts.contrast(
                    store.connection, healthy.connection, here.seen, there.seen, first
                )
        if not (here.whole and there.whole):
            typer.echo("--against: the logs are too large: not all lines were compared", err=True)
        return found, told, sum((one.failed + one.truncated) for one in (summary, summary_))


def _together(paths: Sequence[str]) -> str:
    """What to call the one run that logs handed over together are of."""
    if len(paths) == 1 and paths[0] != "-":
        return Path(paths[0]).resolve().name
    return "run"


def _tell_diagnosis(
    found: Diagnosis,
    contrast: Contrast | None,
    format_: DiagnosisFormat,
    evidence: int,
    output: Path | None,
) -> None:
    import importlib.metadata

    from queries import render, sarif, tell

    match format_:
        case DiagnosisFormat.json:
            told = tell.json(found, contrast)
        case DiagnosisFormat.sarif:
            told = sarif.sarif(found, importlib.metadata.version("firstfault"))
        case DiagnosisFormat.markdown:
            told = tell.markdown(found, contrast)
        case _:
            color = False if output else None
            told = tell.text(found, contrast, evidence=evidence, color=color)
    if format_ is DiagnosisFormat.json:
        for note in found.beside.notes:
            typer.echo(render.shown(note), err=True)
    if output:
        render.write(output, told)
    else:
        typer.echo(told, nl=False)


def _book(extra: Path | None) -> Book:
    """The built-in catalogue and one of the user's, to be read."""
    from matcher import catalogue as catalogues
    from queries.encyclopedia import Book

    loaded = catalogues.load(*_catalogues(extra, None))
    return Book(loaded.by_id, loaded.precedence, catalogues.LIFECYCLE)


def _print(text: str) -> None:
    typer.echo(text, nl=False)


@contextmanager
def _store(path: Path) -> Iterator[Store]:
    from ingest.store import Store
    from queries import report as reports

    with Store(path, reports.views()) as store:
        yield store


def _run(
    db: Path, chosen: list[Report], arguments: dict[str, str], *, lenient: bool
) -> list[Result]:
    from ingest import schema as tables
    from queries import report as reports

    with reports.connect(db, tables.ddl(), tables.VERSION) as connection:
        return [
            reports.run(
                connection,
                one,
                {k: v for k, v in arguments.items() if not lenient or k in one.parameters},
            )
            for one in chosen
        ]


def _arguments(parameters: list[str] | None) -> dict[str, str]:
    arguments: dict[str, str] = {}
    for parameter in parameters or []:
        key, equals, value = parameter.partition("=")
        if not equals:
            raise UsageError(f"-p {parameter}: write -p KEY=VALUE")
        arguments[key.strip()] = value
    return arguments


def _emit(results: list[Result], format_: Format, output: Path | None) -> None:
    from queries import render

    rendered = render.render(results, format_.value)
    if output:
        render.write(output, rendered)
    elif isinstance(rendered, bytes):
        sys.stdout.buffer.write(rendered)
        sys.stdout.buffer.flush()
    else:
        typer.echo(rendered, nl=not rendered.endswith("\n"))


def _tell(summary: Summary, as_json: bool) -> None:
    """The summary, to stdout as JSON or to stderr as text."""
    import json

    if as_json:
        typer.echo(json.dumps(summary._asdict()))
    else:
        typer.echo(summary.text(), err=True)


@contextmanager
def _progress() -> Iterator[Progress]:
    """Progress on stderr where that is a terminal; silence elsewhere."""
    from ingest.pipeline import Progress

    if not sys.stderr.isatty():
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("{task.fields[events]:,} events"),
        TextColumn("{task.fields[files]} files"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("scanning", total=None, events=0, files=0)

        class Shown(Progress):
            def update(self, **state: int) -> None:
                bar.update(
                    task,
                    total=state["total"] or None,
                    completed=state["done"],
                    events=state["events"],
                    files=state["files"],
                )

        yield Shown()


def _complete_reports(incomplete: str) -> list[str]:
    from queries import report as reports

    return [name for name in (*reports.names(), "all") if name.startswith(incomplete)]


def _complete_failures(incomplete: str) -> list[tuple[str, str]]:
    from matcher import catalogue as catalogues

    return [
        (failure.id, failure.title)
        for failure in catalogues.load().failures
        if failure.id.startswith(incomplete)
    ]


def _complete(name: str, incomplete: str) -> list[str]:
    from queries import encyclopedia

    return [word for word in encyclopedia.values(_book(None), name) if word.startswith(incomplete)]


def main() -> None:
    """Entry point of `firstfault`."""
    # numpy would start a thread a core for sums that nothing here asks for: 50 ms a process.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Rows are many and in no cycles, and at the end all goes anyway: collecting costs 100 ms a run.
    gc.set_threshold(100_000, 50, 100)
    atexit.register(gc.freeze)
    app(prog_name="firstfault")
