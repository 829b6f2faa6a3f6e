"""A worker that lies: the server neither crashes nor hangs, and the worker is ended."""

# ruff: noqa: E501 - error texts are quoted whole

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from worker_driving import assert_gone, descriptors, wait_until

from bident.backends.python.incoming import Responses
from bident.backends.python.messages import Answers, BatchDone, Died, Reply, Request
from bident.backends.python.worker.bident_worker.frames import BrokenChannelError, Frame, Kind, Reader, prefix

SEND = "link = request._batch.link; from bident_worker.frames import *; import json, struct\n"


@pytest.mark.parametrize(
    "code",
    [
        "link._channel.sendall(b'\\0' * 100)",
        "link._channel.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n')",
        "link._channel.sendall(PREFIX.pack(MAGIC, 33, 0, 5, 0) + b'{nope')",
        "link._channel.sendall(PREFIX.pack(MAGIC, 33, 0, 2, 0) + b'[]')",
        "link._channel.sendall(PREFIX.pack(MAGIC, 33, 0, 0xffffffff, 0))",
        "link._channel.sendall(PREFIX.pack(MAGIC, 33, 0, 2, 0xffffffff) + b'{}')",
        "link._channel.sendall(PREFIX.pack(MAGIC, 33, 3, 2, 0) + b'{}')",
        "link.send(99, {})",
        "link.send(33, {})",
        "link.send(33, {'batch': 77, 'replies': [{'index': 0, 'final': True}]})",
        "link.send(33, {'batch': request._batch.id, 'replies': [{'index': 5, 'final': True}]})",
        "link.send(33, {'batch': request._batch.id, 'replies': [{'index': None, 'final': True}]})",
        "link.send(33, {'batch': request._batch.id, 'replies': [{'index': 0, 'final': True}] * 2})",
        "link.send(33, {'batch': request._batch.id, 'replies': 5})",
        "link.send(33, {'batch': [], 'replies': []})",
        "link.send(33, {'batch': request._batch.id, 'replies': [{'index': 0, 'final': True, 'error': [99, 'x']}]})",
        "link.send(33, {'batch': request._batch.id, 'replies': [{'index': 0, 'final': True, 'error': [1, 5]}]})",
        "link.send(33, {'batch': request._batch.id, 'replies': [{'index': 0, 'final': True, 'parameters': {'a': []}}]})",
        "link.send(33, {'batch': request._batch.id, 'replies': [{'index': 0, 'final': True, 'parameters': [1]}]})",
        "link.send(33, {'batch': request._batch.id, 'replies': [{'index': 0, 'final': True, 'outputs': [['Y', 'FP32', [4], 0, 0, 16]]}]})",
        "link.send(33, {'batch': request._batch.id, 'count': 7, 'columns': [], 'rows': 1})",
        "link.send(33, {'batch': request._batch.id, 'count': 1, 'columns': [['Y', 'FP32', [0], 0, 0, 0]], 'rows': 4})",
        "link.send(33, {'batch': request._batch.id, 'count': 1, 'columns': [['Y', 'FP32', [0], 0, 0, 0]], 'rows': [-1, 1]})",
        "link.send(33, {'batch': request._batch.id, 'count': 1, 'columns': [], 'rows': [], 'block': [1, 1, 0, 10]})",
        "link.send(33, {'batch': request._batch.id, 'replies': [], 'done': ['x', 'y']})",
        "link.send(FREE := 8, {'free': [1234]})",
        "link.send(8, {'free': 5})",
        "link.send(8, {'retired': [1]})",
        "link.send(36, {'call': 1, 'what': 'segment', 'size': -1})",
        "link.send(36, {'call': 1, 'what': 'segment', 'size': 'x'})",
        "link.send(36, {'call': 1, 'what': 'nonsense'})",
        "link.send(36, {'call': 'x', 'what': 'load', 'model': 'm'})",
        "link.send(36, {'call': 1, 'what': 'load', 'model': 5})",
        "link.send(35, {'call': 1})",
        "link.send(38, {'id': 'x'})",
        "link.send(38, {'id': 1, 'do': 'set', 'value': 'x'})",
        "link.send(37, {'level': 9, 'message': 'x', 'place': ['', 0]})",
        "link.send(37, {'level': 0, 'message': 5, 'place': ['', 0]})",
        "link.send(39, {})",
        "link.send(33, {'batch': 7777, 'done': [1, 2]})",
        "link.send(33, {'batch': request._batch.id, 'replies': [{'index': 0.0, 'final': True}]})",
        "[link.send(33, {'batch': request._batch.id, 'done': [1, 2]}) for _ in range(2)]",
        "link.send(36, {'call': 1, 'what': 'metric_family', 'name': 'a', 'description': '', 'kind': 99})",
        "link.send(36, {'call': 1, 'what': 'metric_family', 'name': 'a', 'description': '', 'kind': 'x'})",
        "link.send(36, {'call': 1, 'what': 'metric', 'family': [], 'labels': {}})",
        "link.send(36, {'call': 1, 'what': 'metric', 'family': 1, 'labels': {'a': []}})",
        "link.send(36, {'call': 1, 'what': 'metric_value', 'id': [1]})",
        "link.send(36, {'call': 1, 'what': []})",
        "link.send(35, {'call': 1, 'model': 'm', 'version': 1, 'id': '', 'inputs': [], 'outputs': [], 'correlation_id': 0, 'flags': 0, 'timeout': -1, 'decoupled': False})",
    ],
)  # fmt: skip
def test_nonsense_ends_the_worker_and_not_the_server(start_worker, code):
    driver = start_worker("script")
    reply = driver.fail(SEND + code + "\ntime.sleep(30)")
    driver.pump(lambda: driver.died() is not None)
    unhealthy = "Stub process 'script_0_0' is not healthy. It sent a message that makes no sense"
    assert driver.died().reason.startswith(unhealthy)
    # Answered once: with the error, or with what it had said before it lied.
    assert reply.error is None or reply.error.message.startswith(unhealthy)
    assert len([event for event in driver.events if isinstance(event, Reply | Answers)]) == 1
    assert isinstance(driver.events[-1], Died)
    assert_gone(driver.worker.pid)


def test_descriptors_that_were_not_asked_for_are_closed(start_worker):
    driver = start_worker("script")
    driver.script("pass")
    before = descriptors()
    code = """
import socket
data = json.dumps({'level': 0, 'message': 'x', 'place': ['', 0]}).encode()
for _ in range(50):
    fds = [os.open('/dev/null', os.O_RDONLY) for _ in range(2)]
    socket.send_fds(link._channel, [PREFIX.pack(MAGIC, 37, 2, len(data), 0) + data], fds)
    for fd in fds: os.close(fd)
answer = 1
"""
    assert driver.script(SEND + code) == 1
    assert descriptors() == before


FLOODS = {
    "after whole messages": """
data = json.dumps({'level': 0, 'message': 'x', 'place': ['', 0]}).encode()
while True: socket.send_fds(link._channel, [PREFIX.pack(MAGIC, 37, 0, len(data), 0) + data], fds)
""",
    "within a message": """
link._channel.sendall(PREFIX.pack(MAGIC, 37, 2, 100000, 0))
while True: socket.send_fds(link._channel, [b' '], fds)
""",
    "announced in masses": """
link._channel.sendall(PREFIX.pack(MAGIC, 37, 255, 100000, 0))
while True: socket.send_fds(link._channel, [b' '], fds)
""",
    "with nonsense behind": """
data = json.dumps({'level': 0, 'message': 'x', 'place': ['', 0]}).encode()
link._channel.setblocking(False)
for _ in range(20): socket.send_fds(link._channel, [(PREFIX.pack(MAGIC, 37, 4, len(data), 0) + data) + b'nonsense' * 9], fds)
""",
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_descriptors_ends_the_worker(start_worker, flood):
    start_worker("script").worker.close()
    before = descriptors()
    driver = start_worker("script")
    most = 0

    def watch():
        nonlocal most
        most = max(most, descriptors())
        return driver.died() is not None

    code = "import socket; fds = [os.open('/dev/null', os.O_RDONLY)] * 4\n" + FLOODS[flood]
    driver.send(Request(inputs={"CODE": np.array([(SEND + code).encode()], object)}))
    driver.pump(watch)
    assert "makes no sense" in driver.died().reason
    assert most < before + 30
    assert_gone(driver.worker.pid)
    wait_until(lambda: descriptors() <= before)


def test_a_batch_is_not_answered_as_a_whole_after_a_part_of_it(start_worker):
    driver = start_worker("script")
    code = """
link.send(33, {'batch': request._batch.id, 'replies': [{'index': 2, 'final': True}]})
link.send(33, {'batch': request._batch.id, 'count': 2, 'columns': [], 'rows': 1})
time.sleep(30)
"""
    code = np.array([(SEND + code).encode()], object)
    replies = driver.run(*[Request(inputs={"CODE": code}) for _ in range(3)])
    assert [(reply.index, reply.error is None) for reply in replies] == [(2, True), (0, False), (1, False)]
    assert "as a whole" in driver.died().reason


@pytest.mark.parametrize("kind", ["plain", "described"])
@pytest.mark.parametrize("said", [(0, 2**63 - 1), (-(2**63), -1), (2**62, -5)])
def test_a_worker_cannot_lie_about_the_time(kind, said):
    responses = Responses()
    events = []
    before = time.monotonic_ns()
    responses.sent(1, 1, before)
    if kind == "plain":
        responses.take(Frame(Kind.FORM, {"form": 0, "columns": [["Y", "INT32", []]]}, bytearray(), []), events)
        header = {"batch": 1, "form": 0, "count": 1, "rows": 1, "start": said[0], "end": said[1]}
        responses.take(Frame(Kind.PLAIN, header, bytearray(16), []), events)
    else:
        responses.take(Frame(Kind.RESPONSES, {"batch": 1, "done": list(said)}, bytearray(), []), events)
    done = next(event for event in events if isinstance(event, BatchDone))
    assert before <= done.start_ns <= done.end_ns <= time.monotonic_ns()


def test_a_frame_in_pieces_is_one_frame(start_worker):
    driver = start_worker("script")
    code = """
data = json.dumps({'level': 0, 'message': 'stück' * 50_000, 'place': ['', 0]}).encode()
message = PREFIX.pack(MAGIC, 37, 0, len(data), 0) + data
for start in range(0, len(message), 999):
    link._channel.sendall(message[start:start + 999])
answer = 1
"""
    assert driver.script(SEND + code) == 1
    assert driver.logged() == ["stück" * 50_000]


class Feed:
    """A socket that gives ``data`` in pieces."""

    def __init__(self, data, randomness):
        self._data, self._at, self._randomness = data, 0, randomness

    def recvmsg_into(self, buffers, ancillary, flags=0):
        count = min(self._randomness.randint(1, 50_000), len(self._data) - self._at, len(buffers[0]))
        buffers[0][:count] = self._data[self._at : self._at + count]
        self._at += count
        return count, [], 0, None


@pytest.mark.parametrize("seed", range(20))
def test_frames_come_out_as_they_went_in(seed):
    import json

    randomness = random.Random(seed)
    sent = []
    for number in range(60):
        header = {"n": number, "text": "ж" * randomness.choice([0, 3, 1000, 200_000])}
        payload = randomness.randbytes(randomness.choice([0, 16, 48_000, 700_000]))
        sent.append((header, payload))
    encoded = [(json.dumps(header).encode(), payload) for header, payload in sent]
    data = b"".join(prefix(Kind.LOG, len(header), len(payload)) + header + payload for header, payload in encoded)
    reader = Reader(Feed(data, randomness), json.loads)
    got = []
    while (frames := reader.read()) is not None:
        got += [(frame.header, bytes(frame.payload)) for frame in frames]
    assert got == sent


@pytest.mark.parametrize("seed", range(50))
def test_random_bytes_are_never_a_crash(seed):
    import json

    randomness = random.Random(seed)
    header = json.dumps({"a": 1}).encode()
    data = bytearray(prefix(Kind.LOG, len(header), 20) + header + bytes(20)) * 50
    for _ in range(randomness.randint(1, 5)):
        data[randomness.randrange(len(data))] = randomness.randrange(256)
    reader = Reader(Feed(bytes(data), randomness), json.loads)
    try:
        while reader.read() is not None:
            pass
    except BrokenChannelError:
        pass


def test_a_flood_of_logs_does_not_stop_the_others(start_worker):
    driver = start_worker("script")
    batch = driver.send(
        Request(inputs={"CODE": np.array([b"for i in range(20000): pb_utils.Logger.log_info('x' * 50)"], object)})
    )
    while not driver.replies(batch):
        events = driver.worker.receive()
        # One call takes a bounded share, however much there is.
        assert len(events) <= 20_000
        driver.events += events
    driver.pump(lambda: len(driver.logged()) == 20000)


def test_the_channel_being_full_stops_nobody(start_worker, tmp_path):
    driver = start_worker("slow")
    path = np.array([str(tmp_path / "go").encode()], object)
    inputs = {"IN0": path, "BALLAST": np.zeros(12_000, np.uint8)}
    batches = [driver.send(Request(inputs=inputs)) for _ in range(100)]
    assert driver.worker.wants_write
    (tmp_path / "go").touch()
    for batch in batches:
        driver.finish(batch)
    assert not driver.worker.wants_write
