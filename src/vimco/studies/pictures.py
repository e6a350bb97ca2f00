"""The pictures that runs have drawn."""

from vimco.files import read_file
from vimco.runs.directory import Run
from vimco.studies.document import Picture, Text

LARGEST = 20_000_000  # bytes


def picture_of(run: Run, name: str, caption: str) -> Picture | Text:
    """Return the picture in a run's directory: drawn at its end, unless `vimco sample` has replaced it."""
    path = run.path / "samples.png"
    try:
        content = read_file(path, LARGEST, follow=False)
    except FileNotFoundError:
        return Text(f"There is no picture in {run.name} yet: it draws one at its end.")
    except OSError as error:
        return Text(f"The picture of {run.name} is left out: samples.png cannot be read ({error.strerror}).")
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        return Text(f"The picture of {run.name} is left out: samples.png is not a PNG file of at most 20 MB.")
    caption = (
        f"{caption} This is samples.png of {run.name}: drawn at the end of training with the best parameters by "
        "validation, unless vimco sample has drawn it anew since, with options of its own."
    )
    return Picture(name, "png", content, caption, caption)
