import pytest

from bident.model import normalise, pbtxt


def applied(text, count=1):
    proto = pbtxt.parse(f'name: "m" {text}'.encode(), "x")
    normalise.apply(proto, count)
    return proto


def test_counts_are_the_backends_unless_declared():
    groups = applied(
        "instance_group [ { }, { count: 5 }, { kind: KIND_MODEL }, { count: -2 } ]", count=2
    ).instance_group
    assert [group.count for group in groups] == [2, 5, 1, 2]
    assert [group.name for group in groups] == ["m_0", "m_1", "m_2", "m_3"]
    assert [group.count for group in applied("", count=2).instance_group] == [2]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "max_batch_size: 8 dynamic_batching { }",
        "max_batch_size: 8 sequence_batching { oldest { } }",
        'platform: "ensemble" ensemble_scheduling { }',
    ],
)
def test_a_second_time_changes_nothing(text):
    once = applied(text)
    twice = applied(text)
    normalise.apply(twice, 7)
    assert twice == once


def test_declared_values_stay():
    text = "version_policy { all { } } max_batch_size: 8 dynamic_batching { preferred_batch_size: 3 }"
    proto = applied(f"{text} optimization {{ input_pinned_memory {{ enable: false }} }}")
    assert proto.version_policy.WhichOneof("policy_choice") == "all"
    assert list(proto.dynamic_batching.preferred_batch_size) == [3]
    assert not proto.optimization.input_pinned_memory.enable
    assert proto.optimization.output_pinned_memory.enable
