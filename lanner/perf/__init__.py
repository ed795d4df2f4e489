"""Load a model server, and say where the time goes.

`measure.run(settings)` drives any Triton / KServe v2 server and returns a `Report`; `report.write` publishes it as
CSV, JSON, PNG and one self-contained HTML page.
"""

from lanner.perf.measure import run
from lanner.perf.results import Level, Report
from lanner.perf.settings import Settings, parse_levels

__all__ = ["Level", "Report", "Settings", "parse_levels", "run"]
