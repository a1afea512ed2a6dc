"""Writes tables as Parquet files and runs SQL on them. This is the only file that imports the optional DuckDB."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from ..errors import InductorBenchError, UsageError
from ..records.base import TEXT, Answer, QueryTable
from .files import copy_file, remove_file

INSTALL = "pip install 'inductor-bench[query]'"
READ_ONLY = "a query only reads the tables; to keep its answer: --format csv > FILE"

_THREADS = 4
_SOURCE = "source"


def write_parquet(tables: Sequence[QueryTable], folder: Path) -> bool:
    """Writes each table as ``NAME.parquet`` in ``folder``, atomically; without DuckDB it removes older files.

    Returns:
        Whether the files were written.

    Raises:
        InductorBenchError: a file cannot be written.
    """
    targets = [folder / f"{table.name}.parquet" for table in tables]
    duckdb = _load()
    if duckdb is None:
        for target in targets:
            remove_file(target)
        return False
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as scratch, _connect(duckdb) as connection:
        for table, target in zip(tables, targets, strict=True):
            file = Path(scratch) / target.name
            try:
                with _write_source(connection, table) as typed:
                    connection.execute(f"COPY ({typed}) TO {_quote_text(str(file))} (FORMAT parquet, COMPRESSION zstd)")
            except duckdb.Error as error:
                raise InductorBenchError(
                    f"cannot write {target}: {_shorten_error(error)[0]}", name="unwritable"
                ) from error
            copy_file(file, target)
    return True


def query_tables(tables: Sequence[QueryTable], sql: str) -> Answer:
    """Runs a query over the tables, and returns the answer. It runs on a copy in memory and cannot open files.

    Raises:
        UsageError: DuckDB refuses the query.
        InductorBenchError: DuckDB is not installed.
    """
    duckdb = _load()
    if duckdb is None:
        raise InductorBenchError("a query needs DuckDB, which is not installed", INSTALL, "no-duckdb")
    with _connect(duckdb) as connection:
        for table in tables:
            with _write_source(connection, table) as typed:
                connection.execute(f"CREATE TABLE {_name(table.name)} AS {typed}")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        try:
            return _interruptible(lambda: _make_answer(connection.execute(sql)), connection)
        except (duckdb.Error, OverflowError) as error:  # OverflowError: Python has no type for a value
            message, *more = _shorten_error(error)
            hint = READ_ONLY if isinstance(error, duckdb.PermissionException) else " ".join(more)
            proposed = any(f'"{table.name}"' in hint for table in tables)
            if "Table with name" in message and not proposed:  # DuckDB proposes tables of its own
                hint = f"the tables are {', '.join(table.name for table in tables)}"
            hint = hint or "without a query, the tables and their columns are listed"
            raise UsageError(message, hint, "bad-query") from error


def _make_answer(result: Any) -> Answer:
    if result is None:  # the query holds comments only
        return Answer((), [])
    return Answer(tuple(column[0] for column in result.description or ()), result.fetchall())


STOP_S = 2.0
"""Seconds for DuckDB to stop a query. After that the process ends at once: a query leaves nothing to clean up."""


def _interruptible(ask: Callable[[], Answer], connection: Any) -> Answer:
    """Asks in a thread, because no signal interrupts this one while DuckDB computes in it."""
    pool = ThreadPoolExecutor(1)
    asked = pool.submit(ask)
    try:
        return asked.result()
    except KeyboardInterrupt:
        connection.interrupt()
        if wait([asked], STOP_S).not_done:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        raise
    finally:
        pool.shutdown(wait=False)


def _load() -> Any:
    """DuckDB, or ``None`` if it is not installed."""
    try:
        import duckdb
    except ImportError:
        return None
    return duckdb


@contextlib.contextmanager
def _connect(duckdb: Any) -> Iterator[Any]:
    # Without a temporary folder: by default it would lie in the current folder.
    config = {"threads": str(_THREADS), "temp_directory": ""}
    try:  # from 2.0 on it would start four further threads for each core, 256 on 64 cores
        connection = duckdb.connect(":memory:", config={**config, "async_threads": str(_THREADS)})
    except duckdb.InvalidInputException:  # before 2.0
        connection = duckdb.connect(":memory:", config=config)
    try:
        connection.execute("SET enable_progress_bar = false")  # it is printed on stdout
        yield connection
    finally:
        connection.close()


@contextlib.contextmanager
def _write_source(connection: Any, table: QueryTable) -> Iterator[str]:
    """A SELECT statement that returns the table with its column types; valid inside the block."""
    import numpy

    # DuckDB reads NaN as NULL, so that columns of whole numbers with unknown values pass as floats.
    arrays = {
        column.name: numpy.array(_remove_unreadable_columns(column.values), dtype=object)
        if column.type == TEXT
        else numpy.array(column.values, dtype=float)
        for column in table.columns
    }
    connection.register(_SOURCE, arrays)
    try:
        casts = (f"TRY_CAST({_name(column.name)} AS {column.type}) AS {_name(column.name)}" for column in table.columns)
        yield f"SELECT {', '.join(casts)} FROM {_SOURCE}"
    finally:
        connection.unregister(_SOURCE)


def _remove_unreadable_columns(texts: Sequence[Any]) -> Sequence[Any]:
    """The texts with escapes for characters that UTF-8 cannot encode, as in a path with arbitrary bytes."""
    if "".join(filter(None, texts)).isascii():
        return texts
    return [text and text.encode("utf-8", "backslashreplace").decode() for text in texts]


def _shorten_error(error: Exception) -> list[str]:
    """The lines of DuckDB's message: the error, then its proposals; without the query's text and tracebacks."""
    text = str(error).split("\nLINE ")[0].split("\nTraceback ")[0]
    return [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
