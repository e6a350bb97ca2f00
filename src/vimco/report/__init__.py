"""Reports: tables, figures and a web page from run directories. Nothing here trains.

`vimco.studies` chooses runs and makes sections of them; `assembly` joins these to a document, and `page`, `markdown`
and `terminal` render it.
"""

from vimco.report.assembly import write_report

__all__ = ["write_report"]
