"""The benchmarks' own gRPC client, against grpcio's server."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from benchmarks import grpc_client

COUNT = 3000


class _Echo(grpc.GenericRpcHandler):
    """Answers COUNT times with what it was sent."""

    def service(self, handler_call_details):
        if handler_call_details.method != "/test.Echo/Repeat":
            return None
        return grpc.unary_stream_rpc_method_handler(lambda request, context: (request for _ in range(COUNT)))


@pytest.fixture
def port():
    server = grpc.server(ThreadPoolExecutor(2), handlers=[_Echo()])
    number = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield number
    server.stop(None)


def test_every_message_of_a_stream_is_read(port):
    message = bytes(range(256)) * 2
    answer = grpc_client.call("127.0.0.1", port, "/test.Echo/Repeat", message)
    assert answer.messages == [message] * COUNT
    assert answer.seconds > 0


def test_a_call_that_fails_has_no_messages(port):
    assert grpc_client.call("127.0.0.1", port, "/test.Echo/Nothing", b"").messages == []
