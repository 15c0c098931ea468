"""Kafka's own StickyTaskAssignor beside ours (P-230): the same tasks, choices among equals included."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pykbroker.groups.assignors.streams.spec import AssignmentMember, TaskAssignorError, TaskId
from pykbroker.groups.streams.tasks import TaskMap, Tasks
from tests.pykbroker.groups.assignors.streams.groups import (
    Topology,
    after,
    assign,
    group,
    random_topology,
    some_members,
)
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java

CASES = 4_000
MOST_MEMBERS = 40

ASSIGN = """
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.coordinator.group.streams.assignor.*;

public class Assign {
    static final ObjectMapper JSON = new ObjectMapper();

    static Map<String, Set<Integer>> tasks(JsonNode node) {
        Map<String, Set<Integer>> found = new HashMap<>();
        node.properties().forEach(entry -> {
            Set<Integer> partitions = new HashSet<>();
            entry.getValue().forEach(partition -> partitions.add(partition.asInt()));
            found.put(entry.getKey(), partitions);
        });
        return found;
    }

    static JsonNode answer(JsonNode question) {
        Map<String, AssignmentMemberSpec> members = new HashMap<>();
        for (JsonNode member : question.get("members"))
            members.put(member.get("id").asText(), new AssignmentMemberSpec(
                Optional.empty(), Optional.empty(), tasks(member.get("active")), tasks(member.get("standby")), Map.of(),
                member.get("process").asText(), Map.of(), Map.of(), Map.of()));
        JsonNode subtopologies = question.get("subtopologies");
        TopologyDescriber topology = new TopologyDescriber() {
            public List<String> subtopologies() {
                List<String> names = new ArrayList<>();
                subtopologies.fieldNames().forEachRemaining(names::add);
                return names;
            }
            public int maxNumInputPartitions(String name) {
                return subtopologies.get(name).get(0).asInt();
            }
            public boolean isStateful(String name) {
                return subtopologies.get(name).get(1).asBoolean();
            }
        };
        var configs = Map.of("num.standby.replicas", question.get("standbys").asText());
        try {
            ObjectNode found = JSON.createObjectNode();
            new StickyTaskAssignor().assign(new GroupSpecImpl(members, configs), topology).members().forEach(
                (id, target) -> found.set(id, JSON.valueToTree(
                    List.of(target.activeTasks(), target.standbyTasks(), target.warmupTasks()))));
            return found;
        } catch (TaskAssignorException error) {
            return JSON.createObjectNode().put("error", error.getMessage());
        }
    }

    public static void main(String[] arguments) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine())
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        out.flush();
    }
}
"""

Case = tuple[Topology, dict[str, AssignmentMember], int]


def asked(case: Case) -> str:
    """A case as a line of JSON."""
    topology, members, standbys = case
    return json.dumps(
        {
            "members": [
                {
                    "id": member_id,
                    "process": spec.process_id,
                    "active": listed(spec.tasks.active),
                    "standby": listed(spec.tasks.standby),
                }
                for member_id, spec in members.items()
            ],
            "subtopologies": topology,
            "standbys": standbys,
        }
    )


def listed(tasks: TaskMap) -> dict[str, list[int]]:
    return {name: sorted(partitions) for name, partitions in tasks.items()}


def said(case: Case) -> dict[str, Any]:
    """Our answer in the form of the program's."""
    topology, members, standbys = case
    try:
        targets = assign(group(members, standbys), topology)
    except TaskAssignorError as error:
        return {"error": str(error)}
    return {member_id: in_form(target) for member_id, target in targets.items()}


def in_form(target: Tasks) -> list[dict[str, list[int]]]:
    return [listed(tasks) for tasks in target]


def histories(chooser: random.Random) -> Iterator[Case]:
    """Groups that members leave and join, with their last targets; sometimes a topology or a setting changes too."""
    while True:
        topology, standbys, members = random_topology(chooser), chooser.randint(0, 3), dict[str, AssignmentMember]()
        for _ in range(chooser.randint(2, 6)):
            members = some_members(chooser, members, chooser.choice([2, 8, MOST_MEMBERS]))
            yield topology, members, standbys
            members = after(members, assign(group(members, standbys), topology))
            if chooser.random() < 0.2:
                topology, standbys = random_topology(chooser), chooser.randint(0, 3)


def disorder(chooser: random.Random) -> Iterator[Case]:
    """Groups whose present assignment is anything: tasks with several members or that do not exist; no members."""
    yield Topology({"0": 1}), {}, 0
    while True:
        topology = random_topology(chooser)
        tasks = [*topology.tasks(), *Topology({"gone": 3}).tasks()]
        members = {
            member_id: spec._replace(tasks=Tasks(some(tasks, chooser), some(tasks, chooser)))
            for member_id, spec in some_members(chooser, {}).items()
        }
        yield topology, members, chooser.randint(0, 3)


def some(tasks: Sequence[TaskId], chooser: random.Random) -> TaskMap:
    chosen: dict[str, set[int]] = {}
    for task in tasks:
        if chooser.random() < 0.4:
            chosen.setdefault(task.subtopology_id, set()).add(task.partition)
    return {name: frozenset(partitions) for name, partitions in chosen.items()}


def test_the_same_tasks_as_kafka(tmp_path: Path) -> None:
    jars = f"{kafka_libs()}/*"
    source = tmp_path / "Assign.java"
    source.write_text(ASSIGN)
    chooser = random.Random(20261124)
    generators = histories(chooser), disorder(chooser)
    cases = [next(generators[number % 2]) for number in range(CASES)]
    run = subprocess.run(
        ["java", "-cp", jars, str(source)],
        input="".join(f"{asked(case)}\n" for case in cases),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    answers = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    for case, expected in zip(cases, answers, strict=True):
        expected = {
            member_id: [{name: sorted(tasks) for name, tasks in kind.items()} for kind in kinds]
            if isinstance(kinds, list)
            else kinds
            for member_id, kinds in expected.items()
        }
        assert said(case) == expected, asked(case)
