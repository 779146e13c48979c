"""The page of an audit, as text and in a real browser."""

import html
from collections.abc import Iterator
from dataclasses import replace

import pytest
from selenium.webdriver import Chrome
from tests.checkpoints.audit.families import FAMILIES, GROUPED, ROPES, build, llama
from tests.checkpoints.audit.zoo import Variant
from tests.checkpoints.audit.zoo import build as of_zoo
from tests.figures.browser import browser, open_page
from tests.figures.test_browser import OVERFLOW, assert_sound

from spectrope.checkpoints.audit import Audit, audit
from spectrope.checkpoints.audit.figures import HEADS, kernel_panels, pair_panels, slope_panels
from spectrope.checkpoints.audit.page import reached, reaches, render_audit, write_audit
from spectrope.checkpoints.audit.text import closing, reasons, stretches

LONG = 160


def wrong() -> Audit:
    """A Llama whose second layer turns by another base, at a length beyond the declared one."""
    model = llama(rope_parameters=dict(ROPES["yarn"]))
    fitting = audit(model, length=LONG, serving_modes=True)
    other = audit(llama(rope_parameters=dict(ROPES["default"])), length=LONG)
    layer = replace(fitting.layers[1], effective=other.layers[1].effective, verdict="differs")
    return replace(fitting, layers=(fitting.layers[0], layer))


AUDITS = {
    "rotary": wrong,
    "linear bias": lambda: audit(FAMILIES["bloom"](), length=96),
    "buckets": lambda: audit(FAMILIES["t5"](), length=96),
    "no kernel": lambda: audit(FAMILIES["gpt2"](), length=96),
}


@pytest.fixture(scope="module")
def audits() -> dict[str, Audit]:
    return {name: make() for name, make in AUDITS.items()}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.mark.sampled
@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("name", AUDITS)
def test_every_row_is_drawn_and_nothing_asked_for(driver, audits, tmp_path, name, width):
    path = write_audit(audits[name], tmp_path / "page.html")
    drawn = [*pair_panels(audits[name]), *slope_panels(audits[name]), *kernel_panels(audits[name])]
    assert assert_sound(driver, path, width) == len(drawn)


def test_panels_hold_every_kernel_and_every_pair(audits):
    found = audits["rotary"]
    for layer, panel in zip(found.layers, kernel_panels(found), strict=True):
        rows = [row for marks in panel.layers.values() for row in marks.rows]
        drawn = sorted((row["head"], row["lag"], row["logit"]) for row in rows)
        measured = (
            (one.head, *point) for one in layer.heads for point in zip(one.lags, one.kernel, strict=True)
        )
        assert drawn == sorted(measured)
    first, second = pair_panels(found)
    assert (first.title, second.title) == ("layer 0", "layer 1")
    assert [row["name"] for row in first.layers["lengths"].rows] == ["audited length", "declared length"]
    wavelengths = [row["wavelength"] for row in second.layers["effective"].rows]
    assert wavelengths != [row["wavelength"] for row in second.layers["declared"].rows]
    assert wavelengths[0] == pytest.approx(6.2831853, rel=1e-6)
    assert len(pair_panels(replace(found, layers=found.layers[:1] * 2))) == 1


def test_lines_join_neighbouring_lags_alone(audits):
    (panel, _) = kernel_panels(audits["rotary"])
    lags = {name: sorted({row["lag"] for row in marks.rows}) for name, marks in panel.layers.items()}
    assert lags["heads"] == list(range(lags["heads"][0], lags["heads"][-1] + 1))
    assert min(lags["sparse"]) > lags["heads"][-1] + 1
    assert panel.layers["heads"].spec()["mark"]["type"] == "line"
    assert panel.layers["sparse"].spec()["mark"]["type"] == "circle"


def test_layers_that_fall_alike_share_a_panel(audits):
    (panel,) = slope_panels(audits["linear bias"])
    assert panel.title == "layers 0 to 1"
    assert [row["slope"] for row in panel.layers["declared"].rows] == [0.25, 0.0625, 0.015625, 0.00390625]


def test_of_many_heads_some_are_drawn(audits):
    found = audits["linear bias"]
    layer = found.layers[0]
    many = replace(found, layers=(replace(layer, heads=layer.heads * 10),))
    (panel,) = kernel_panels(many)
    drawn = sum(len(marks.rows) for marks in panel.layers.values())
    assert drawn == 14 * len(layer.heads[0].lags)
    assert f"about {HEADS} are drawn" in render_audit(many)
    assert "are drawn" not in render_audit(found)


def test_the_page_says_what_the_audit_found(audits):
    page = render_audit(audits["rotary"])
    assert "differs" in page
    assert "packed sequences" in page
    text = reaches(audits["rotary"])["0, 1"]
    assert text.startswith("3 of 8 pairs turn fully within 160 positions, 3 within the declared 128; ")
    assert "reach angles that no position within the declared length has" in text
    assert "pairs are slowed from pair 1 on, by up to 4" in text
    assert "table wpe from row 0" in render_audit(audits["no kernel"])
    assert "Every layer applies what the configuration declares, in everything" in render_audit(
        audits["buckets"]
    )


def test_pairs_are_listed_with_their_wavelengths(audits):
    rows = {row.what: row for row in reached(audits["rotary"])["0, 1"]}
    assert rows["turn fully within the declared 128 positions"].pairs == "0–2"
    assert rows["turn fully within the audited 160"].wavelengths.startswith("6.283 to ")
    unseen = rows["reach angles that no position within the declared length has"]
    assert unseen.pairs == "3–7"
    assert rows["are slower than the base implies"].pairs == "1–7"
    assert f"<td>{unseen.wavelengths}</td>" in render_audit(audits["rotary"])
    layer = audits["rotary"].layers[0]
    still = tuple(replace(pair, wavelength=None, aliased=pair.pair == 3) for pair in layer.reach.pairs)
    reach = replace(layer.reach, pairs=still)
    rows = reached(replace(audits["rotary"], layers=(replace(layer, reach=reach),)))["0"]
    assert [(row.pairs, row.wavelengths) for row in rows if "half a turn" in row.what] == [
        ("3", "do not rotate")
    ]


def test_a_slope_of_another_sign_is_drawn_off_its_ring(audits):
    layer = audits["linear bias"].layers[0]
    slopes = layer.effective.slopes
    wrong = replace(layer, effective=replace(layer.effective, slopes=(slopes[0], -slopes[1], *slopes[2:])))
    kinds = []
    for one in (layer, wrong):
        panel = slope_panels(replace(audits["linear bias"], layers=(one,)))[0]
        kinds += [
            panel.layers[name].spec()["encoding"]["y"]["scale"]["type"] for name in ("effective", "declared")
        ]
    assert kinds == ["log", "log", "symlog", "symlog"]


def test_layers_whose_pairs_reach_elsewhere_have_rows_of_their_own(audits):
    audit = audits["rotary"]
    first = audit.layers[0]
    slower = tuple(replace(pair, wavelength=1.5 * pair.wavelength) for pair in first.reach.pairs)
    other = replace(first, layer=9, reach=replace(first.reach, pairs=slower))
    assert [*reached(replace(audit, layers=(first, other)))] == [first.name, other.name]


def test_neighbours_are_joined():
    assert stretches([0, 1, 2, 5, 7, 8]) == "0–2, 5, 7–8"
    assert stretches([]) == ""


def test_reaches_tell_of_aliasing_and_of_pairs_that_stand_still(audits):
    found = audits["rotary"]
    reach = replace(found.layers[0].reach, aliased=2, slowdown=None)
    text = reaches(replace(found, layers=(replace(found.layers[0], reach=reach),)))["0"]
    assert "2 rotate by more than half a turn per position, so their sense is ambiguous" in text
    assert text.endswith("pairs are slowed from pair 1 on, and the slowest do not rotate.")


def test_names_are_shown_and_never_run(driver, audits, tmp_path):
    name = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    open_page(driver, write_audit(replace(audits["buckets"], model=name), tmp_path / "page.html"), 400)
    assert driver.execute_script("return window.hacked") is None
    assert name in driver.find_element("css selector", "h1").text
    assert driver.execute_script(OVERFLOW) <= 0


def test_the_page_leads_with_a_difference_beside_the_layers():
    page = render_audit(audit(llama(use_logn_attn=True), length=32, serving_modes=False))
    summary = page[page.index('<p class="summary">') :].partition("</p>")[0]
    assert summary.index("differs</span> beside the layers") < summary.index("matches</span> 2 layers")


UNEVEN = {
    "a stack that is not read": ("incomplete", lambda: of_zoo(Variant("longt5", "seq2seq"))),
    "layers without attention": ("matches", lambda: of_zoo(Variant("bamba", "causal"))),
    "cross-attention": (
        "matches",
        lambda: build("Mllama", config="TextConfig", **GROUPED | {"cross_attention_layers": [1]}),
    ),
    "an ignored field": ("differs", lambda: llama(attention_multiplier=0.5)),
}


@pytest.mark.parametrize(("outcome", "make"), UNEVEN.values(), ids=UNEVEN)
def test_the_page_gives_the_outcome_and_every_reason_of_the_text(outcome, make):
    found = replace(audit(make(), length=48, serving_modes=False), notes=("a conversion would round",))
    page = html.unescape(render_audit(found))
    assert found.outcome == outcome
    assert reasons(found)
    for where, why in [*reasons(found), ("note", "a conversion would round")]:
        assert f"<li><strong>{where}</strong><div><p>{why}</p></div></li>" in page
        assert f"{where}: {why}" in str(found)
        assert f"<li>{where}: {why}</li>" in html.unescape(found._repr_html_())
    summary = page[page.index('<p class="summary">') :].partition("</p>")[0]
    assert ("what the configuration declares, in everything that was tested" in summary) == found.ok
    assert found.ok or f"{outcome}</span> beside the layers, " in summary


def test_of_layers_that_do_not_run_on_tokens_alone_nothing_is_said_of_their_kernel():
    found = audit(UNEVEN["cross-attention"][1](), length=48, serving_modes=False)
    assert "layers.1: no softmax attention ran on tokens alone, so not audited" in str(found)
    assert closing(found).startswith("Layer 0 applies what the configuration declares")
