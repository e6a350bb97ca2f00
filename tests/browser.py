"""A real headless browser, controlled over a pipe by its debugging protocol, without a driver program or library."""

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

SECONDS = 60


def browser_program() -> str | None:
    """Return the path of Chromium, under any of its names."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page:
    """An open page: its console messages, its requests, and scripts in it."""

    def __init__(self, to_browser: int, from_browser: int):
        self._out, self._in = to_browser, from_browser
        self._buffer, self._numbers = b"", itertools.count(1)
        self.events: list[dict] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, path: Path) -> None:
        """Open a file and wait until it is loaded; forget messages of earlier pages."""
        self.events.clear()
        self._call("Page.navigate", url=path.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def value(self, script: str):
        """Return the value of a JavaScript expression."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def resize(self, width: int, height: int = 800) -> None:
        """Resize the window; a narrow one is like a phone's."""
        mobile = width < 600
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def prefer(self, scheme: str) -> None:
        """Ask pages for their light or dark colours."""
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def screenshot(self, width: int, height: int) -> bytes:
        """Return a picture of the window from its upper left corner, as PNG."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        return base64.b64decode(self._call("Page.captureScreenshot", format="png", clip=clip)["data"])

    def slow_down(self, factor: float) -> None:
        """Let scripts run so many times slower, as on a phone."""
        self._call("Emulation.setCPUThrottlingRate", rate=factor)

    def place(self, selector: str, x: float = 0.5, y: float = 0.5) -> tuple[float, float]:
        """Scroll to an element, and return the point at these shares of its width and height."""
        left, top, width, height = self.value(
            f"(e => {{ e.scrollIntoView({{block: 'center', behavior: 'instant'}});"
            " const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        return left + x * width, top + y * height

    def drag(self, points: list[tuple[float, float]]) -> None:
        """Move the mouse along points of the window with its button down; one point is a click."""
        (x, y), *others = points
        self._mouse("mouseMoved", x, y, buttons=0)
        self._mouse("mousePressed", x, y, buttons=1)
        for x, y in others:
            self._mouse("mouseMoved", x, y, buttons=1)
        self._mouse("mouseReleased", x, y, buttons=0)

    def swipe(self, points: list[tuple[float, float]]) -> None:
        """Move a finger along points of the window."""
        for number, (x, y) in enumerate(points):
            kind = "touchMove" if number else "touchStart"
            self._call("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y}])
        self._call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def press(self, key: str, shift: bool = False, control: bool = False) -> None:
        """Press and release a key, by its name in scripts."""
        code = {"Tab": 9, "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        text = {"Enter": "\r", " ": " "}.get(key, "")
        event = {"key": key, "windowsVirtualKeyCode": code.get(key, 0), "modifiers": 8 * shift + 2 * control}
        self._call("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        self._call("Input.dispatchKeyEvent", type="keyUp", **event)

    def _mouse(self, kind: str, x: float, y: float, buttons: int) -> None:
        button = "none" if kind == "mouseMoved" else "left"
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=buttons, clickCount=1)

    def complaints(self) -> list[dict]:
        """Return errors and warnings on the console, exceptions, and failed loads."""
        self.value("new Promise(done => setTimeout(done, 100))")  # lets late ones arrive
        return [
            event
            for event in self.events
            if event["method"] in ("Runtime.exceptionThrown", "Network.loadingFailed")
            or (event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning"))
            or (event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning"))
        ]

    def requests(self) -> list[str]:
        """Return every requested address."""
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [params["request"]["url"] for params in sent]

    def _call(self, method: str, **params) -> dict:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if hasattr(self, "_session"):
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self) -> dict:
        while b"\0" not in self._buffer:
            content = os.read(self._in, 1 << 16)
            assert content, "the browser has gone"
            self._buffer += content
        text, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message


@contextlib.contextmanager
def open_page(program: str, profile: Path) -> Iterator[Page]:
    """Yield an empty page of a browser with a profile in this folder; always end the browser."""
    to_browser, from_browser = os.pipe(), os.pipe()
    options = [
        "--headless",
        "--no-sandbox",  # it refuses to run as root otherwise, as in a container
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        f"--user-data-dir={profile}",
        "--remote-debugging-pipe",
    ]
    # The protocol uses the descriptors 3 and 4, which the shell sets up.
    script = f'exec "$0" "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}'
    process = subprocess.Popen(
        ["bash", "-c", script, program, *options],
        pass_fds=(to_browser[0], from_browser[1]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser[0])
    os.close(from_browser[1])
    try:
        yield Page(to_browser[1], from_browser[0])
    finally:
        os.close(to_browser[1])
        os.close(from_browser[0])
        process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
