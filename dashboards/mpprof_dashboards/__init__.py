"""The dashboard of mpprof: pages over a RunSource, served on this machine, and the one-file HTML report."""

from mpprof_dashboards.app import create_app
from mpprof_dashboards.export import report_html, run_html
from mpprof_dashboards.serve import serve

__all__ = ["create_app", "report_html", "run_html", "serve"]
