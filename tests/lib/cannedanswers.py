"""A daemon that gives the answers it is told to: for what `divvy` makes of answers that a real one gives rarely."""

import fcntl
import json
import os
import shutil
import socketserver
import tempfile
import threading

import divvytest


class CannedAnswers:
    """Answers by path; a path without one gets 404. Use it as a context manager.

    An answer is a JSON document, or for /v1/watch the pictures, one for each line: the last one is repeated.
    """

    INTERVAL_S = 0.1

    def __init__(self, answers):
        self.answers = answers
        self.asked = []
        self.home = tempfile.mkdtemp(prefix="dv-", dir="/tmp")
        self.dir = os.path.join(self.home, "run")
        os.makedirs(os.path.join(self.dir, "control"), mode=0o755)
        self.lock = open(os.path.join(self.dir, "divvyd.lock"), "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.over = threading.Event()
        canned = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                canned.serve(self)
        self.server = socketserver.ThreadingUnixStreamServer(os.path.join(self.dir, "control", "control.sock"), Handler)
        self.server.daemon_threads = True

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        self.lock.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def env(self):
        return {**divvytest.bare_env(), "DIVVY_DIR": self.dir, "LC_ALL": "C.UTF-8"}

    def serve(self, handler):
        line = handler.rfile.readline().decode().split()
        while line and handler.rfile.readline().strip():
            pass
        if not line:   # somebody has looked whether a daemon answers
            return
        self.asked.append((line[0], line[1]))
        path = line[1].split("?")[0]
        try:
            if path == "/v1/watch":
                self.watch(handler, self.answers[path])
                return
            body = json.dumps(self.answers.get(path, {"error": "not found"}), ensure_ascii=False).encode()
            handler.wfile.write(b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (
                b"200 OK" if path in self.answers else b"404 Not Found", len(body), body))
        except OSError:
            pass   # the caller has gone

    def watch(self, handler, pictures):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        number = 0
        while not self.over.is_set():
            line = json.dumps(pictures[min(number, len(pictures) - 1)], ensure_ascii=False)
            handler.wfile.write(line.encode() + b"\n")
            handler.wfile.flush()
            number += 1
            self.over.wait(self.INTERVAL_S)
