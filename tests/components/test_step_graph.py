"""The drawing of a run's steps: where boxes stand, which arrows are drawn, and that it is sound XML with escaped texts."""

from xml.etree import ElementTree

import pytest

from components.errors import InvalidConfig
from components.step_graph import Step, depths, graph_svg, needed_edges

# a -> b -> d, a -> c -> d, a -> d: the last says nothing that the others do not.
DIAMOND = {"d": ["a", "b", "c"], "c": ["a"], "b": ["a"], "a": []}
SVG = "{http://www.w3.org/2000/svg}"


def test_a_step_stands_behind_everything_that_it_waits_for() -> None:
    assert depths(DIAMOND) == {"a": 0, "b": 1, "c": 1, "d": 2}


def test_an_arrow_that_a_longer_way_says_already_is_not_drawn() -> None:
    assert needed_edges(DIAMOND) == [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]


def test_steps_in_a_circle_are_refused_by_name() -> None:
    with pytest.raises(InvalidConfig, match=r"steps a, b: each waits for another"):
        depths({"a": ["b"], "b": ["a"], "c": []})


def test_boxes_keep_apart_and_lead_to_their_reports() -> None:
    steps = [Step(name=name, after=after, state="succeeded", to=f"{name}/report.html") for name, after in DIAMOND.items()]
    drawn = ElementTree.fromstring(graph_svg(steps))
    boxes = [{key: float(box.get(key, "")) for key in ("x", "y", "width", "height")} for box in drawn.iter("rect")]
    assert len(boxes) == 4
    for one in boxes:
        assert one["x"] >= 0
        assert one["x"] + one["width"] <= 760
        for other in boxes:
            apart = one["x"] + one["width"] <= other["x"] or one["y"] + one["height"] <= other["y"]
            assert one is other or apart or other["x"] + other["width"] <= one["x"] or other["y"] + other["height"] <= one["y"]
    assert {link.get("href") for link in drawn.iter("a")} == {f"{name}/report.html" for name in "abcd"}


def test_texts_are_escaped_and_a_state_is_a_word_and_not_only_a_colour() -> None:
    svg = graph_svg([Step(name="a<b", after=[], state="failed", detail="1 & 2")])
    drawn = ElementTree.fromstring(svg)
    assert {"a<b", "failed", "1 & 2"} <= {text.text for text in drawn.iter("text")}
