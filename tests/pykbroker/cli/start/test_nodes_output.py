"""Output of the nodes of `pykbroker start --nodes`, from pipes in place of processes."""

from __future__ import annotations

import os

import pytest

from pykbroker.cli.start.nodes import Node, Supervisor
from pykbroker.cli.start.options import StartOptions


def test_each_line_has_the_id_of_its_node(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    supervisor = Supervisor(StartOptions(), {}, {1: "data/node-1.properties"}, "id")
    output, nodes_output = os.pipe()
    os.set_blocking(output, False)
    node = Node(1, pid=0, output=output, ready=-1, lifeline=-1)
    os.write(nodes_output, b"first\nsecond\nbegin")
    supervisor._pass_on(node)
    assert capfdbinary.readouterr().err == b"node 1 | first\nnode 1 | second\n"
    os.write(nodes_output, b" and end without a line break")
    os.close(nodes_output)
    supervisor._pass_on(node)
    assert capfdbinary.readouterr().err == b"node 1 | begin and end without a line break\n"
    supervisor._pass_on(node)
    assert capfdbinary.readouterr().err == b""
    os.close(output)
