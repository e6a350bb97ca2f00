"""Run directories -> tables, figures, one web page. Never trains.

`vimco.results` reads and chooses runs; here `tables` and `curves` show them, `sections` puts those of a study together,
`claims` holds them against what the paper says, `document` and `page` write, and `assembly` makes the whole.
"""

from vimco.report.assembly import write_report

__all__ = ["write_report"]
