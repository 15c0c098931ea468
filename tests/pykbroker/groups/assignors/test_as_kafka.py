"""Kafka's own assignors of consumer and share groups beside ours (P-384): the same partitions, choices among equals
included."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pykbroker.groups.assignors.range import assign_range
from pykbroker.groups.assignors.simple import assign_simple
from pykbroker.groups.assignors.spec import Assignment, GroupSpec, MemberSpec, in_order
from pykbroker.groups.assignors.uniform import assign_uniform
from pykbroker.java_order import hash_order
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.steps import finished
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java

CASES = 3_000

ASSIGN = """
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;
import org.apache.kafka.coordinator.group.modern.*;

public class Assign {
    static final ObjectMapper JSON = new ObjectMapper();

    static Uuid id(String text) {
        long first = Long.parseUnsignedLong(text.substring(0, 16), 16);
        return new Uuid(first, Long.parseUnsignedLong(text.substring(16), 16));
    }

    static String text(Uuid id) {
        return String.format("%016x%016x", id.getMostSignificantBits(), id.getLeastSignificantBits());
    }

    static JsonNode answer(JsonNode question) {
        Map<Uuid, Integer> counts = new HashMap<>();
        Map<Uuid, Set<Integer>> assignable = new HashMap<>();
        List<Uuid> ordered = new ArrayList<>();
        question.get("topics").forEach(topic -> {
            Uuid id = id(topic.get("id").asText());
            ordered.add(id);
            counts.put(id, topic.get("count").asInt());
            Set<Integer> numbers = new HashSet<>();
            topic.get("assignable").forEach(number -> numbers.add(number.asInt()));
            assignable.put(id, numbers);
        });
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        question.get("members").forEach(member -> {
            String name = member.get("id").asText();
            Set<String> wanted = new HashSet<>();
            member.get("topics").forEach(topic -> wanted.add(topic.asText()));
            Set<Uuid> subscribed = new LinkedHashSet<>();
            for (Uuid id : ordered) if (wanted.contains(text(id))) subscribed.add(id);
            Map<Uuid, Set<Integer>> assigned = new HashMap<>();
            member.get("assigned").forEach(topic -> {
                List<Integer> numbers = new ArrayList<>();
                topic.get("partitions").forEach(number -> numbers.add(number.asInt()));
                Uuid id = id(topic.get("id").asText());
                assigned.put(id, new HashSet<>(numbers));
                for (int number : numbers) inverted.computeIfAbsent(id, __ -> new HashMap<>()).put(number, name);
            });
            members.put(name, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.ofNullable(member.get("instance").textValue()), subscribed,
                new Assignment(assigned)));
        });
        SubscribedTopicDescriber topics = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid id) { return counts.getOrDefault(id, -1); }
            public Set<String> racksForPartition(Uuid id, int partition) { return Set.of(); }
        };
        String name = question.get("assignor").asText();
        PartitionAssignor assignor = switch (name) {
            case "simple" -> new SimpleAssignor();
            case "range" -> new RangeAssignor();
            default -> new UniformAssignor();
        };
        var spec = new GroupSpecImpl(
            members, question.get("alike").asBoolean() ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS,
            inverted, name.equals("simple") ? Optional.of(assignable) : Optional.empty());
        ObjectNode found = JSON.createObjectNode();
        GroupAssignment targets;
        try {
            targets = assignor.assign(spec, topics);
        } catch (NoSuchElementException error) {
            return found.put("error", error.toString());
        }
        targets.members().forEach((member, target) -> {
            ObjectNode partitions = found.putObject(member);
            target.partitions().forEach(
                (id, numbers) -> partitions.set(text(id), JSON.valueToTree(new ArrayList<>(numbers))));
        });
        return found;
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


class Case(NamedTuple):
    """One question: an assignor, a group and its topics; `assignable` are the partitions that share groups may get."""

    assignor: str
    members: dict[str, MemberSpec]
    partition_counts: dict[bytes, int]
    is_homogeneous: bool
    assignable: dict[bytes, set[int]]


def asked(case: Case) -> str:
    """A case as a line of JSON."""
    return json.dumps(
        {
            "assignor": case.assignor,
            "alike": case.is_homogeneous,
            "topics": [
                {"id": topic_id.hex(), "count": count, "assignable": sorted(case.assignable[topic_id])}
                for topic_id, count in case.partition_counts.items()
            ],
            "members": [
                {
                    "id": member_id,
                    "instance": spec.instance_id,
                    "topics": [topic_id.hex() for topic_id in spec.topic_ids],
                    "assigned": [
                        {"id": topic_id.hex(), "partitions": list(in_order(partitions))}
                        for topic_id, partitions in spec.assigned.items()
                    ],
                }
                for member_id, spec in case.members.items()
            ],
        }
    )


def targets(case: Case) -> dict[str, Assignment]:
    """Our answer."""
    members = {member_id: case.members[member_id] for member_id in hash_order(case.members)}
    group = GroupSpec(members, case.is_homogeneous)
    if case.assignor == "simple":
        may = case.assignable
        steps = assign_simple(group, case.partition_counts, lambda topic_id, number: number in may[topic_id])
        return finished(steps)
    assign = assign_range if case.assignor == "range" else assign_uniform
    return finished(assign(group, case.partition_counts))


def histories(chooser: random.Random) -> Iterator[Case]:
    """Groups that members leave and join, with their last targets, of topics that get more partitions."""
    while True:
        assignor = chooser.choice(["uniform", "uniform", "range", "simple", "simple"])
        counts = {chooser.randbytes(16): chooser.choice([1, 3, 7, 30, 100]) for _ in range(chooser.choice([1, 3, 15]))}
        everybody = [f"member-{chooser.getrandbits(40):x}" for _ in range(chooser.choice([2, 6, 40]))]
        is_alike, are_some_unready = chooser.random() < 0.6, chooser.random() < 0.3
        common = frozenset(chooser.sample(sorted(counts), chooser.randint(1, len(counts))))
        present: dict[str, Assignment] = {}
        for _ in range(chooser.randint(2, 7)):
            chosen = chooser.sample(everybody, chooser.randint(1, len(everybody)))
            members = {}
            for member_id in chosen:
                own = frozenset(chooser.sample(sorted(counts), chooser.randint(1, len(counts))))
                instance_id = f"i{everybody.index(member_id)}" if chooser.random() < 0.1 else None
                members[member_id] = MemberSpec(
                    instance_id, common if is_alike else own, by_topic(present.get(member_id, {}))
                )
            wanted = frozenset[bytes]().union(*(member.topic_ids for member in members.values()))
            subscribed = {topic_id: count for topic_id, count in counts.items() if topic_id in wanted}
            assignable = {topic_id: set(range(count)) for topic_id, count in counts.items()}
            if are_some_unready:
                assignable = {topic_id: {n for n in numbers if n % 5} for topic_id, numbers in assignable.items()}
                are_some_unready = chooser.random() < 0.7
            case = Case(assignor, members, subscribed, is_alike, assignable)
            yield case
            present = targets(case)
            if chooser.random() < 0.3:
                counts = {topic_id: count + chooser.choice([0, 0, 2]) for topic_id, count in counts.items()}
            if is_alike and chooser.random() < 0.2:
                common = frozenset(chooser.sample(sorted(counts), chooser.randint(1, len(counts))))


def by_topic(assignment: Assignment) -> Assignment:
    """The topics of an assignment in an order that the program can repeat."""
    return {topic_id: assignment[topic_id] for topic_id in sorted(assignment)}


def in_form(target: dict[str, list[int]], present: Mapping[bytes, frozenset[int]]) -> dict[str, list[int]]:
    """A target with its partitions in order; ascending if the member keeps what it has: then no record is written."""
    is_kept = {topic_id: sorted(partitions) for topic_id, partitions in target.items()} == {
        topic_id.hex(): sorted(partitions) for topic_id, partitions in present.items()
    }
    return {topic_id: sorted(partitions) for topic_id, partitions in target.items()} if is_kept else target


def test_p384_the_same_partitions_as_kafka(tmp_path: Path) -> None:
    """P-384."""
    source = tmp_path / "Assign.java"
    source.write_text(ASSIGN)
    generator = histories(random.Random(20261125))
    cases = [next(generator) for _ in range(CASES)]
    run = subprocess.run(
        ["java", "-cp", f"{kafka_libs()}/*", str(source)],
        input="".join(f"{asked(case)}\n" for case in cases),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    answers = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    for case, expected in zip(cases, answers, strict=True):
        found = {
            member_id: {topic_id.hex(): list(in_order(partitions)) for topic_id, partitions in target.items()}
            for member_id, target in targets(case).items()
        }
        assert found.keys() == expected.keys()
        for member_id, spec in case.members.items():
            if member_id in expected:
                kafkas, ours = (in_form(target[member_id], spec.assigned) for target in (expected, found))
                assert kafkas == ours, asked(case)
