"""The paper's tables and figures: their runs, the numbers it reports, how they are shown, and what it claims."""
