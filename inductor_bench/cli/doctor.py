"""The verb ``doctor``: reports installed and missing packages, how to install them, and the peaks of the device."""

from __future__ import annotations

from typing import Any

import click

from ..errors import EXIT_FAILURE, EXIT_OK
from ..records.request import DoctorRequest
from ..report.formats import View
from ..report.table_documents import DOCTOR_FORMATS
from .presentation import add_format_option, add_request_options, make_console, make_request, show


@click.command("doctor")
@add_request_options(DoctorRequest)
@add_format_option(DOCTOR_FORMATS)
@click.option("-v", "--verbose", is_flag=True, help="Show what the measuring process prints.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the result.")
def command(format: str, verbose: bool, quiet: bool, **values: Any) -> int:
    """Check the installation, and measure the peaks of the devices.

    Measures the device's peaks (memory bandwidth, dense matrix rate per dtype) once and keeps them for later runs.
    Imports each optional package: timm, torchvision and transformers with the interpreter that runs the programs
    (--python), duckdb and ray with its own.

    Exit code: 0, or 1 if something that is needed is missing.
    """
    from ..workflows.doctor import run_doctor

    with make_console({"quiet": quiet, "verbose": verbose}, DOCTOR_FORMATS.get(format)) as console:
        report = run_doctor(make_request(DoctorRequest, values), console)
        show(DOCTOR_FORMATS.get(format), report, View(columns=console.columns), console)
    return EXIT_OK if report.healthy else EXIT_FAILURE
