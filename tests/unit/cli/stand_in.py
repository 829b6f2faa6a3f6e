"""A stand-in for the server that ``bident up`` starts: a real process, which says what it was started with."""

from __future__ import annotations

import json
from pathlib import Path

from bident.local.record import STATE_DIR

SERVER = """
import json, os, signal, sys, threading, time
from http.server import BaseHTTPRequestHandler, HTTPServer

def end_with_the_test(parent=os.getppid(), last=time.monotonic() + 60):
    while os.getppid() == parent and time.monotonic() < last:
        time.sleep(0.1)
    os._exit(9)

threading.Thread(target=end_with_the_test, daemon=True).start()
flags = dict(word.split("=", 1) for word in sys.argv[1:])
mode = os.environ.get("FAKE_MODE", "")
print("flags", json.dumps(flags), flush=True)
if mode == "dies":
    sys.exit("cannot open the shutters")
if mode == "refuses":
    for message in ("failed to load 'bad': it is \\"damaged\\"", "failed to load all models"):
        print("E1130 14:59:29.225140 %d app.py:142]" % os.getpid(), json.dumps(message), file=sys.stderr)
    print("I1130 14:59:29.225140 %d app.py:142]" % os.getpid(), "\\n".join(str(line) for line in range(50)))
    sys.exit(1)
if "--log-file" in flags:
    with open(flags["--log-file"], "a") as log:
        log.write("a line of the log file\\n")

class Door(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(400 if mode in ("unready", "failed") and "ready" in self.path else 200)
        self.end_headers()

    def do_POST(self):
        state = {"failed": "UNAVAILABLE", "unready": "LOADING"}.get(mode, "READY")
        self.send_response(200)
        self.end_headers()
        reason = "loading since 2026-11-30T16:03:12Z" if state == "LOADING" else "no file"
        entry = {"name": "m", "version": "1", "state": state, "reason": reason}
        self.wfile.write(json.dumps([{"name": "m"} if mode == "passed over" else entry]).encode())

def stop(*_):
    print("asked to stop", flush=True)
    for left in (2, 1):
        busy = "Timeout %d: Found 2 model versions that have in-flight inferences: slow, slower" % left
        busy = json.dumps(busy) if left == 2 else busy  # messages may come unescaped
        print("I1130 14:59:29.225140 %d app.py:142] %s" % (os.getpid(), busy), flush=True)
    if mode != "stubborn":
        os._exit(0)

class Text(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"version": "0.14.0", "bident": "1"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

signal.signal(signal.SIGTERM, stop)
if "--text-port" in flags and mode != "no text":
    text = HTTPServer(("127.0.0.1", int(flags["--text-port"])), Text)
    threading.Thread(target=text.serve_forever, daemon=True).start()
HTTPServer(("127.0.0.1", int(flags["--http-port"])), Door).serve_forever()
"""


def flags() -> dict[str, str]:
    """The flags that the stand-in of this folder was started with."""
    lines = Path(STATE_DIR, "serve.log").read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith("flags "))
    parsed: dict[str, str] = json.loads(line.removeprefix("flags "))
    return parsed
