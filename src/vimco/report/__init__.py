"""Run directories -> tables, figures, one web page. Never trains.

`vimco.studies` chooses runs and shows them in sections; `assembly` makes a document of these, and `page`, `markdown`
and `terminal` render it.
"""

from vimco.report.assembly import write_report

__all__ = ["write_report"]
