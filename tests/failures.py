"""A pytest plugin: `--failures-to FILE` appends what pytest says of a failure to FILE when it happens, not when all is over.

For long runs that may be cut: what was found by then is told.
"""

from pathlib import Path

import pytest


class Teller:
    """In the process that all reports come to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with self.path.open("a", encoding="utf-8") as file:
                print(
                    f"== {report.nodeid}, {report.when}, after {report.duration:.0f} s\n{report.longreprtext}",
                    file=file,
                )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failures-to", metavar="FILE", help="append each failure to FILE as soon as it is there")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--failures-to")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Teller(Path(path)))
