"""What a worker that comes later has to be told."""

from __future__ import annotations

from bident.workers.journal import MODELS, Change, Journal


def load(name: str, config: str | None = None) -> Change:
    return Change(MODELS, "load", (name, config, None))


def unload(name: str) -> Change:
    return Change(MODELS, "unload", (name, False))


def region(name: str, verb: str = "register_system") -> Change:
    return Change("shared_memory", verb, (name, "/key", 0, 8) if verb.startswith("register") else (name,))


def test_only_the_last_word_on_a_model_counts_in_the_order_of_the_last_words() -> None:
    journal = Journal()
    journal.names = ["a", "b"]
    for change in (load("a"), load("c"), load("a", "{}"), unload("b")):
        journal.note(change)
    assert journal.changes() == [load("c"), load("a", "{}"), unload("b")]
    assert journal.touched() == {"a", "b", "c"}


def test_unloads_of_what_nobody_would_load_leave_nothing_behind() -> None:
    journal = Journal()
    journal.names = ["a"]
    journal.note(load("c"))
    for number in range(1000):
        journal.note(unload(f"never{number}"))
    journal.note(unload("c"))
    assert journal.changes() == []


def test_regions_are_forgotten_one_by_one_or_all_at_once() -> None:
    journal = Journal()
    for name in ("x", "y", "z"):
        journal.note(region(name))
    journal.note(region("y", "unregister_system"))
    assert journal.changes() == [region("x"), region("z")]
    journal.note(region("", "unregister_system"))
    assert journal.changes() == []


def test_updates_of_the_same_settings_become_one() -> None:
    journal = Journal()
    for changes in ({"log_info": False}, {"log_verbose_level": 1}, {"log_info": True}):
        journal.note(Change("log_settings", "update", (changes,)))
    journal.note(Change("tracing", "update", ("m", {"trace_rate": "1"})))
    journal.note(Change("tracing", "update", ("", {"trace_rate": "2"})))
    journal.note(Change("tracing", "update", ("m", {"trace_rate": None})))
    assert journal.changes() == [
        Change("log_settings", "update", ({"log_info": True, "log_verbose_level": 1},)),
        Change("tracing", "update", ("", {"trace_rate": "2"})),
        Change("tracing", "update", ("m", {"trace_rate": None})),
    ]
