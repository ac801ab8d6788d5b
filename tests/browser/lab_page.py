"""A notebook in JupyterLab under Chromium: what a reader does with it, and what such a reader sees."""

from __future__ import annotations

import io
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from PIL import Image
from playwright.sync_api import Browser, ConsoleMessage, ElementHandle, Playwright, Route, TimeoutError

LOOK = Path(__file__).with_name("look.js")
WIDTH, HEIGHT = 1024, 1600  # narrow, and high enough for all of a figure
PATIENCE_S, LONGEST_RUN_S = 90, 1800
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


def chromium(playwright: Playwright) -> Browser:
    """Chromium or Chrome of this machine; the variable CHROMIUM names another one."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    assert path, f"there is no browser: install Chromium, or name it in CHROMIUM; looked for {', '.join(NAMES)}"
    return playwright.chromium.launch(executable_path=path, args=FLAGS)


class LabPage:
    """A page of JupyterLab with one notebook.

    Attributes:
        outside: addresses beyond this machine that the page asked for; they are refused.
        console: errors that the browser reported.
    """

    def __init__(self, browser: Browser, address: str, notebook: str) -> None:
        self.context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
        self.outside: list[str] = []
        self.console: list[str] = []
        self.context.route(re.compile("."), self._only_here)
        self.page = self.context.new_page()
        self.page.set_default_timeout(1e3 * PATIENCE_S)
        self.page.add_init_script(path=LOOK)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.console.append(str(error)))
        self.page.on("websocket", lambda socket: self._is_here(socket.url))
        self.page.goto(f"{address}/lab/tree/{notebook}?reset")
        self._wait("look.ready()")

    def _is_here(self, address: str) -> bool:
        parts = urlsplit(address)
        here = parts.scheme in ("data", "blob") or parts.hostname == "127.0.0.1"
        if not here:
            self.outside.append(address)
        return here

    def _only_here(self, route: Route) -> None:
        if self._is_here(route.request.url):
            route.continue_()
        else:
            route.abort()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.console.append(f"{message.text[:300]} ({message.location.get('url', '')[:100]})")

    def _wait(self, condition: str, seconds: float = PATIENCE_S) -> None:
        self.page.wait_for_function(f"() => {condition}", timeout=1e3 * seconds, polling=300)

    def run(self) -> None:
        """Runs all cells, as the menu does, and waits for the last."""
        self.page.evaluate("look.run()")
        self._wait("look.done", LONGEST_RUN_S)
        assert self.page.evaluate("look.done") == "yes"

    def theme(self, name: str) -> None:
        """Changes the theme: "JupyterLab Light" or "JupyterLab Dark"."""
        self.page.evaluate("name => look.theme(name)", name)
        self._wait(f"document.body.dataset.jpThemeName === '{name}'")

    def cell(self, number: int, figures: int) -> ElementHandle:
        """Scrolls to a cell and waits until its figures are drawn."""
        self.page.evaluate("number => look.scroll(number)", number)
        drawn = f"(([...graphs]) => graphs.length >= {figures} && graphs.every(look.marks))"
        with suppress(TimeoutError):  # the test counts them
            self._wait(f"{drawn}(look.graphs(look.cell({number}).node))", PATIENCE_S if figures else 1)
        return self.page.evaluate_handle("number => look.cell(number).node", number).as_element()

    def sizes(self, number: int) -> list[Any]:
        """Scrolls to a cell; of its figures, the heights of place and drawing, and whether both are as wide."""
        self.cell(number, 1)
        with suppress(TimeoutError):  # a drawing follows its place after a moment
            whole = "(sizes => sizes.length && sizes.every(([place, drawing, fits]) => place === drawing && fits))"
            self._wait(f"{whole}(look.sizes({number}))", 10)
        return self.page.evaluate("number => look.sizes(number)", number)

    def change_width(self, way: str) -> None:
        """Changes the notebook's width while its first cell is shown: by the "sidebar", the "window", another "tab"."""
        self.page.evaluate("look.scroll(0)")
        time.sleep(1)  # until cells out of view are hidden
        if way == "tab":
            self._command("launcher:create")
        if way == "window":
            self.page.set_viewport_size({"width": WIDTH - 200, "height": HEIGHT})
        else:
            self.page.keyboard.press("Control+b")
        time.sleep(1)
        if way == "tab":
            self._command("application:activate-previous-tab")
        if way == "window":
            self.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})

    def _command(self, name: str) -> None:
        self.page.evaluate("async (name) => void (await jupyterapp.commands.execute(name))", name)
        time.sleep(1)

    def picture(self, graph: ElementHandle) -> tuple[Image.Image, tuple[float, ...]]:
        """The window, scrolled to a figure, and the figure's place in it: left, top, right, bottom, in pixels."""
        graph.scroll_into_view_if_needed()
        place = graph.evaluate(
            "graph => (({left, top, right, bottom}) => [left, top, right, bottom])"
            "(graph.closest('.jp-OutputArea-child').getBoundingClientRect())"
        )
        return Image.open(io.BytesIO(self.page.screenshot())).convert("RGB"), place

    def moves(self, cell: ElementHandle) -> Iterator[tuple[str, bool]]:
        """Moves each control of a cell's widgets to other positions: its name, and whether the figure changed.

        Controls that appear after a move are moved, too.
        """
        while (found := cell.evaluate_handle("cell => look.next(cell)")).evaluate("found => Boolean(found)"):
            kind, name = found.evaluate("({kind, name}) => [kind, name]")
            control = found.get_property("control").as_element()
            moves = {"slider": self._drag, "menu": self._choose, "tick": self._tick}.get(kind, self._press)
            if kind == "unknown":
                yield f"{name}: the test does not know how to move it", False
                continue
            before = self._signature(cell)
            for position in moves(control):
                yield f"{name}: {position}", self._changed(cell, before)
                yield from self.moves(cell)
                before = self._signature(cell)

    def _drag(self, slider: ElementHandle) -> Iterator[str]:
        """Drags a slider's last handle to the end, or to the middle of the way back if it is there."""
        slider.scroll_into_view_if_needed()
        track, handle = slider.bounding_box(), slider.query_selector_all(".noUi-handle")[-1].bounding_box()
        x, y = handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2
        at_the_end = x > track["x"] + 0.9 * track["width"]
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.mouse.move(track["x"] + track["width"] * (0.5 if at_the_end else 1), y)
        self.page.mouse.up()
        yield "to the middle" if at_the_end else "to the end"

    def _choose(self, menu: ElementHandle) -> Iterator[str]:
        """All choices of a menu, and back to the first one."""
        names = menu.evaluate("menu => [...menu.options].map(option => option.textContent)")
        chosen = menu.evaluate("menu => menu.selectedIndex")
        others = [number for number in range(len(names)) if number != chosen]
        for number in [*others, chosen] if others else []:
            menu.select_option(index=number)
            yield names[number]

    def _tick(self, box: ElementHandle) -> Iterator[str]:
        for _ in range(2):
            box.click()
            yield "ticked" if box.is_checked() else "not ticked"

    def _press(self, row: ElementHandle) -> Iterator[str]:
        """All buttons of a row but the one that is pressed, and that one again; or all tabs."""
        buttons = row.query_selector_all("button, .lm-TabBar-tab")
        for button in [*buttons[1:], buttons[0]]:
            button.click()
            yield button.inner_text()

    def _signature(self, cell: ElementHandle) -> str:
        return cell.evaluate("cell => look.signature(cell)")

    def _changed(self, cell: ElementHandle, before: str) -> bool:
        """Whether the drawing becomes another one, and stays so for a moment."""
        last, end = before, time.monotonic() + 30
        while time.monotonic() < end:
            now = self._signature(cell)
            if now and now == last != before:
                return True
            last = now
            time.sleep(0.3)
        return False

    def close(self) -> None:
        """Ends the notebook's kernel and leaves the page."""
        self.page.evaluate("look.panel().sessionContext.shutdown()")
        self.context.close()
