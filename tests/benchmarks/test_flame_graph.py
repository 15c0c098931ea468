"""Stacks of py-spy, counted and drawn."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks.flame_graph import function_of, stacks_in, svg, top_functions

RAW = "main (a.py:1);read (b.py:5) 3\nmain (a.py:2);read (b.py:6);main (a.py:1) 1\nno stack\n"


def test_stacks_are_read() -> None:
    assert stacks_in(RAW)[0] == (("main (a.py:1)", "read (b.py:5)"), 3)
    assert len(stacks_in(RAW)) == 2


def test_lines_of_a_function_are_one() -> None:
    assert function_of("read (b.py:5)") == "read (b.py)"
    assert function_of("_run (<frozen runpy>:88)") == "_run (<frozen runpy>)"
    assert function_of("native") == "native"


def test_a_function_that_calls_itself_counts_once() -> None:
    by_self, cumulative = top_functions(stacks_in(RAW))
    assert by_self == {"read (b.py)": 3, "main (a.py)": 1}
    assert cumulative == {"main (a.py)": 4, "read (b.py)": 4}


def test_a_flame_graph_is_xml_with_a_box_for_each_function() -> None:
    drawn = ElementTree.fromstring(svg(stacks_in(RAW), "a < b"))
    titles = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["main (a.py): 100.0%", "read (b.py): 100.0%", "main (a.py): 25.0%"]
    assert svg([], "nothing").endswith("</svg>\n")
