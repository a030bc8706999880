"""The site in a real browser: from disk and over HTTP, with and without scripts, by keyboard, light and dark."""

from __future__ import annotations

import csv
import json
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from harness.report import drawing, suite
from harness.report.reading import load
from tests.site_fixture import built, whole_plan

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-quic", "--disable-background-networking"]
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
KINDS = (
    "index.html",
    "claims.html",
    "papers/eight.html",
    "papers/paper-0.html",
    "suites/recall.html",
    "suites/sinks.html",
    "raw/recall.html",
    "runs/index.html",
    "runs/gla",
    "compare.html",
    "methods.html",
    "history.html",
    "literature.html",
    "proof.html",
    "provenance.html",
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH (chromium, chromium-browser, google-chrome)"),
]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


class Visit:
    """A page with all that went wrong on it and every address it asked for."""

    def __init__(self, browser, **options):
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: str, base: str = ""):
        self.page.goto(f"{base or built().as_uri()}/{address(path)}")
        return self.page


def address(path: str) -> str:
    """`runs/gla` stands for the page of the run of that mechanism."""
    file, _, state = path.partition("#")
    if not file.endswith(".html"):
        file = str(next(built().glob(f"{file}-*.html")).relative_to(built()))
    return f"{file}#{state}" if state else file


@pytest.fixture
def visit(browser) -> Iterator[Visit]:
    opened = Visit(browser)
    yield opened
    opened.context.close()
    assert opened.errors == []


def column(page, table: str, place: int) -> list[str]:
    return page.locator(f"#{table} tbody tr:not([hidden]) > :nth-child({place})").all_inner_texts()


@pytest.mark.parametrize("path", KINDS)
def test_opens_from_disk_and_asks_for_nothing_else(visit, path):
    page = visit.open(path)
    page.wait_for_load_state("networkidle")
    assert page.locator("h1").is_visible()
    assert all(url.startswith(built().as_uri()) for url in visit.requests), visit.requests


def test_works_under_a_sub_path_over_http(visit):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *given):
            pass

    folder = built().parent  # the site is served as /site/
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_address[1]}/site"
    try:
        page = visit.open("papers/eight.html", base)
        page.locator("figure .plot").first.hover()
        page.locator("figure.alive").first.wait_for()
        page.get_by_role("link", name="Compare", exact=True).click()
        page.locator("#cells tbody tr").first.wait_for()
    finally:
        server.shutdown()
    assert all(url.startswith((base, "data:", "blob:")) for url in visit.requests)


def test_the_leaderboard_shows_runs_of_one_budget(visit):
    page = visit.open("index.html")
    views = page.get_by_role("navigation", name="Runs of the leaderboard by budget")
    total = len(column(page, "leaderboard", 1))
    seen = {}
    for name in ("iso-parameter", "iso-FLOP", "iso-state"):
        views.get_by_role("link", name=name, exact=True).click()
        page.wait_for_function("name => location.hash.includes(name)", arg=f"leaderboard.q={name.lower()}")
        seen[name] = {text.split("\n")[0].strip() for text in column(page, "leaderboard", 1)}
    assert any("delta_net" in run for run in seen["iso-parameter"])
    assert not any(run.startswith("delta_net") for run in seen["iso-FLOP"] | seen["iso-state"])
    assert any(run.startswith("gla") for run in seen["iso-FLOP"])
    assert not any(run.startswith("gla") for run in seen["iso-state"])
    assert all(any(run.startswith("softmax") for run in runs) for runs in seen.values())
    views.get_by_role("link", name="all runs").click()
    page.wait_for_function(
        "total => document.querySelectorAll('#leaderboard tbody tr:not([hidden])').length === total", arg=total
    )
    outside = page.locator("#leaderboard tbody tr", has_text="outside budget")
    assert outside.count() >= 1
    assert outside.first.locator("sup").count() == 0, "a run outside its budget has no tie letters"


def test_numbers_sort_as_numbers_and_missing_last(visit):
    page = visit.open("index.html#leaderboard.hide=none")
    table = page.locator("#leaderboard")
    heads = table.locator("thead th")
    place = next(k for k in range(heads.count()) if "loss/length @ 2,048" in heads.nth(k).inner_text())
    for turn in ("ascending", "descending"):
        heads.nth(place).locator("button").click()
        assert heads.nth(place).get_attribute("aria-sort") == turn
        cells = table.locator(f"tbody tr > :nth-child({place + 1})")
        values = cells.evaluate_all(
            "all => all.map(one => one.dataset.v === '' ? one.innerText : one.dataset.v ?? null)"
        )
        known = [float(value) for value in values if value]
        assert known == sorted(known, reverse=turn == "descending")
        assert values[len(known) :] == [None] * (len(values) - len(known))


def test_state_lies_in_the_address(visit):
    page = visit.open("claims.html")
    everything = len(column(page, "claims", 1))
    page.get_by_label("Filter rows: Every claim").fill("eight inconclusive")
    some = column(page, "claims", 2)
    assert 0 < len(some) < everything
    assert set(some) == {"eight"}
    page.locator("#claims thead th").nth(3).locator("button").click()
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Test", exact=True).uncheck()
    assert "claims.q=eight+inconclusive" in page.url
    url, shown = page.url, column(page, "claims", 1)
    page.goto("about:blank")
    page.goto(url)
    assert column(page, "claims", 1) == shown
    assert page.locator("#claims thead th").nth(3).get_attribute("aria-sort") == "ascending"
    assert not page.locator("#claims thead th").nth(2).is_visible()
    page.get_by_label("Filter rows: Every claim").fill("")
    assert len(column(page, "claims", 1)) == everything


def test_a_verdict_on_the_front_page_leads_to_its_claims(visit):
    page = visit.open("index.html")
    link = page.locator(".tally a", has_text="contradicted")
    wanted = int(link.locator("b").inner_text())
    link.click()
    page.wait_for_url("**/claims.html#*")
    verdicts = column(page, "claims", 4)
    assert len(verdicts) >= wanted
    assert verdicts.count("contradicted") == wanted


@pytest.mark.parametrize(
    ("kind", "first"), [("CSV", "Mechanism,"), ("Markdown", "| Mechanism |"), ("LaTeX", "\\begin{tabular}{l")]
)
def test_a_table_is_copied_as_it_is_shown(browser, kind, first):
    opened = Visit(browser, permissions=["clipboard-read", "clipboard-write"])
    page = opened.open("index.html#leaderboard.q=softmax")
    box = page.locator("#leaderboard-box")
    box.get_by_text("Copy", exact=True).click()
    box.get_by_role("button", name=kind).click()
    page.get_by_text("Copied").wait_for()
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.startswith(first)
    assert "softmax" in text
    assert "retnet" not in text
    assert opened.errors == []
    opened.context.close()


def test_columns_are_the_readers_choice(visit):
    page = visit.open("index.html")
    box = page.locator("#leaderboard-box")
    box.get_by_text("Columns", exact=True).click()
    choice = box.locator("label", has_text="recall/needle-1 @ 1,024").locator("input")
    assert not choice.is_checked()
    choice.check()
    assert box.locator("th", has_text="recall/needle-1 @ 1,024").is_visible()
    page.reload()
    assert page.locator("#leaderboard th", has_text="recall/needle-1 @ 1,024").is_visible()


def test_the_theme_follows_the_system_until_the_reader_chooses(browser):
    opened = Visit(browser, color_scheme="dark")
    page = opened.open("index.html")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) == "rgb(20, 22, 26)"
    page.get_by_role("button", name="Switch to light").click()
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    opened.open("claims.html")
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    assert opened.errors == []
    opened.context.close()


def test_a_chart_answers_the_pointer(visit):
    page = visit.open("suites/recall.html")
    figure = page.locator("figure.chart").first
    size = figure.locator(".plot svg").bounding_box()
    figure.locator(".plot").hover()
    page.locator("figure.alive").first.wait_for()
    live = figure.locator(".plot svg").bounding_box()
    assert abs(live["width"] - size["width"]) < 1
    assert abs(live["height"] - size["height"]) < 2
    figure.locator(".mark-symbol path").first.hover(force=True)
    tip = page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    assert "mechanism" in tip.inner_text()


def test_a_page_puts_the_spec_of_a_chart_together_again(visit):
    (made,) = (one for one in suite.pages(load(whole_plan(), built().parent)) if one.path == "suites/recall.html")
    page = visit.open(made.path)
    page.evaluate("attest.copy = text => { window.copied = JSON.parse(text); }")
    for chart in made.context["charts"]:
        page.evaluate("window.copied = null")
        page.locator(f"#chart-{chart.id}").get_by_role("button", name="Vega-Lite").click()
        page.wait_for_function("window.copied")
        told, wanted = page.evaluate("copied"), json.loads(json.dumps(chart.spec))
        assert told.pop("config") == drawing.CONFIG
        rows = csv.DictReader(wanted.pop("data")["values"].splitlines())
        numbers = [{"run": row["run"]} | {key: float(row[key]) for key in ("seed", "x", "y")} for row in rows]
        assert told.pop("data")["values"] == numbers
        assert told == wanted


def test_pointing_at_the_key_brings_a_line_forward(visit):
    page = visit.open("papers/eight.html")
    page.locator(".key [data-run='gla']").hover()
    page.locator("figure.alive").first.wait_for()
    page.wait_for_function(
        "[...document.querySelectorAll('figure.alive .mark-line path')].some(p => +p.getAttribute('opacity') < 0.2)"
    )


def test_search_finds_pages_and_claims(visit):
    page = visit.open("methods.html")
    page.keyboard.press("/")
    page.keyboard.type("eight mechanisms side")
    page.locator("#found [role=option]").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/papers/eight.html")


def test_two_runs_are_compared_by_seed(visit):
    page = visit.open("compare.html")
    rows = page.locator("#cells tbody tr")
    rows.first.wait_for()
    page.locator("#run-a").select_option(label="softpick")
    page.locator("#run-b").select_option(label="linear_attention")
    page.locator("#cells caption", has_text="softpick (A) against linear_attention (B)").wait_for()
    row = page.locator("#cells tbody tr", has_text="recall/mqar-16")
    a, b, difference = (float(row.locator("td").nth(k).get_attribute("data-v")) for k in range(3))
    assert difference == pytest.approx(a - b, abs=1e-9)
    assert row.locator("td").nth(5).inner_text() == "A"
    items = page.locator("#cells tbody tr", has_text="loss/test bits per byte").locator("td").nth(6)
    assert items.inner_text() == "64 : 0 : 0", "softpick's scores are the lower ones"
    assert row.locator("td").nth(6).get_attribute("title") == "no items kept"
    url = page.url
    page.get_by_role("button", name="Swap A and B").click()
    page.locator("#cells caption", has_text="linear_attention (A)").wait_for()
    page.goto("about:blank")
    page.goto(url)
    page.locator("#cells caption", has_text="softpick (A) against linear_attention (B)").wait_for()


def test_a_number_leads_to_its_seeds(visit):
    page = visit.open("suites/loss.html")
    page.locator("#heat-bits_per_byte tbody tr").first.locator("td a").first.click()
    page.wait_for_url("**/runs/softmax-*.html#loss.test.128.bits_per_byte")
    assert page.locator("tr:target td").count() >= 4


def test_without_scripts_everything_can_be_read(browser):
    opened = Visit(browser, java_script_enabled=False)
    page = opened.open("papers/eight.html")
    assert page.locator("#verdict-table tbody tr").first.is_visible()
    assert page.locator("figure.chart svg").first.is_visible()
    opened.open("index.html")
    assert page.locator("#leaderboard tbody tr").first.is_visible()
    assert not page.locator("#search").is_visible()
    opened.open("compare.html")
    assert page.locator("noscript p").is_visible()
    opened.context.close()


def test_every_control_is_reached_by_keyboard(visit):
    page = visit.open("papers/eight.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(400):
        page.keyboard.press("Tab")
        mark = page.evaluate("(e => (e.dataset.seen ??= String(Math.random())))(document.activeElement)")
        if mark in reached:
            break
        reached.add(mark)
    missed = page.evaluate("""[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
        .filter(e => e.checkVisibility({visibilityProperty: true}) && !e.dataset.seen && !e.matches('.skip'))
        .map(e => e.outerHTML.slice(0, 80))""")
    assert missed == []


@pytest.mark.parametrize("width", [390, 768])
def test_nothing_sticks_out_on_a_narrow_screen(browser, width):
    opened = Visit(browser)
    opened.page.set_viewport_size({"width": width, "height": 844})
    for path in KINDS:
        page = opened.open(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    opened.context.close()


def test_a_page_prints(visit, tmp_path):
    page = visit.open("papers/eight.html")
    page.pdf(path=tmp_path / "paper.pdf")
    assert (tmp_path / "paper.pdf").stat().st_size > 20_000
    page.emulate_media(media="print")
    assert not page.locator(".tools").is_visible()
    assert page.locator("figure.chart svg").first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", KINDS)
def test_axe_finds_nothing(browser, path, scheme):
    opened = Visit(browser, color_scheme=scheme, reduced_motion="reduce")
    page = opened.open(path)
    page.wait_for_load_state("networkidle")
    page.add_script_tag(path=AXE)
    found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    said = [f"{one['id']}: {one['nodes'][0]['html'][:200]} ({one['nodes'][0]['failureSummary']})" for one in found]
    opened.context.close()
    assert said == []


def test_a_picture_is_saved_as_it_stands(visit):
    page = visit.open("suites/recall.html")
    figure = page.locator("figure.chart").first
    with page.expect_download() as saved:
        figure.get_by_role("button", name="SVG").click()
    tree = ET.parse(saved.value.path()).getroot()
    names = [element.tag.rpartition("}")[2] for element in tree.iter()]
    assert names[:4] == ["svg", "title", "desc", "rect"]
    assert tree[0].text == figure.locator("figcaption").inner_text()
    assert names.count("path") > 5


def test_a_chart_is_saved_as_png(visit):
    page = visit.open("suites/recall.html")
    with page.expect_download() as saved:
        page.locator("figure.chart").first.get_by_role("button", name="PNG").click()
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("script", "at_once"),
    [("delete window.DecompressionStream", True), ("window.DecompressionStream = function () { throw 1; }", False)],
)
def test_a_browser_that_cannot_unpack_says_so(visit, script, at_once):
    visit.page.add_init_script(script)
    page = visit.open("suites/recall.html")
    figure = page.locator("figure.chart").first
    button = figure.get_by_role("button", name="PNG")
    assert button.is_disabled() == at_once
    figure.locator(".plot").hover()
    page.wait_for_function("document.querySelector('figure.chart .take button:disabled')")
    assert "cannot unpack Vega" in button.get_attribute("title")
    with page.expect_download():
        figure.get_by_role("button", name="SVG").click()


def test_headings_stay_in_sight_and_tables_print_whole(visit):
    page = visit.open("claims.html")
    box = page.locator(".scroll.tall").first
    box.evaluate("e => e.scrollTo(0, 600)")
    head, frame = box.locator("thead th").first.bounding_box(), box.bounding_box()
    assert abs(head["y"] - frame["y"]) < 3, "the headings stand at the top of the box"
    first = box.locator("tbody th").first
    page.emulate_media(media="print")
    assert box.evaluate("e => e.clientHeight >= e.querySelector('table').offsetHeight")
    assert first.evaluate("e => getComputedStyle(e).position") == "static"
