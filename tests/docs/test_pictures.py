"""tools/pictures, without the programs: what it makes of a terminal's text and of a timeline. And the pictures of the
documents."""

import importlib.machinery
import importlib.util
import os
import sys
import xml.etree.ElementTree

import pytest

import pages

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def pictures():
    sys.dont_write_bytecode = True   # beside a script without a suffix
    loader = importlib.machinery.SourceFileLoader("pictures", os.path.join(pages.REPOSITORY, "tools/pictures"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("pictures", loader))
    loader.exec_module(module)
    return module


def texts_of(picture):
    return {element.text: element for element in picture.iter(SVG + "text")}


def test_a_look_goes_on_in_the_next_line(pictures):
    drawn = xml.etree.ElementTree.fromstring(pictures.draw_terminal(
        "\x1b[1mtitle\nheading\x1b[0m\n\x1b[32mbusy <b>\n\x1b[39m\x1b[7mchosen\x1b[27m \x1b[33m▁█\n"))
    texts = texts_of(drawn)
    assert texts["heading"].get("font-weight") == "bold" and texts["heading"].get("fill") == pictures.BRIGHT
    assert texts["busy <b>"].get("fill") == pictures.FOREGROUND[32]
    assert texts["chosen"].get("fill") == pictures.GROUND
    assert float(texts["busy <b>"].get("y")) - float(texts["heading"].get("y")) == pictures.CELL_Y
    blocks = [float(box.get("height")) for box in drawn.iter(SVG + "rect")
              if box.get("fill") == pictures.FOREGROUND[33]]
    assert blocks == sorted(blocks) and len(blocks) == 2


def test_a_timeline(pictures):
    def span(name, track, begin_ms, ms, **args):
        return {"name": name, "ph": "X", "pid": 1, "tid": track, "ts": 1000 * begin_ms, "dur": 1000 * ms, "args": args}
    events = [{"name": "thread_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "held by"}},
              {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1007, "args": {"name": "session 7 train (ann)"}},
              span("ann: train", 0, 100, 200, tenant="ann"), span("holds", 1007, 100, 200, tenant="ann"),
              span("waits", 1007, 300, 100), span("brings memory", 1007, 100, 50),
              {"name": "recall", "ph": "i", "pid": 1, "tid": 1007, "ts": 250_000},
              span("holds", 1007, 1000 + pictures.SHOWN_MS, 1, tenant="ann")]
    drawn = xml.etree.ElementTree.fromstring(pictures.draw_timeline(events))
    assert {"the device", "session 7 train", "ann"} <= set(texts_of(drawn))
    span_px = pictures.WIDTH - pictures.LEFT - pictures.RIGHT
    holds = [box for box in drawn.iter(SVG + "rect") if box.get("height") == str(pictures.LANE)]
    assert len(holds) == 2
    assert abs(float(holds[0].get("width")) - span_px * 200 / pictures.SHOWN_MS) < 1
    waits = [box for box in drawn.iter(SVG + "rect") if box.get("fill") == "url(#wait0)" and not box.get("stroke")]
    assert len(waits) == 1 and float(waits[0].get("x")) > float(holds[0].get("x"))


@pytest.mark.parametrize("name, words", [("top", {"vision", "STATE"}), ("trace", {"the device", "waits"})])
def test_the_pictures_of_the_documents(name, words):
    picture = xml.etree.ElementTree.fromstring(pages.read("docs/pictures/%s.svg" % name))
    shown = " ".join(filter(None, texts_of(picture)))
    assert all(word in shown for word in words), shown


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
