"""ClickHouse's HTTP interface in front of the engine of the `chdb` wheel: server.py FOLDER PORT.

It takes what agents and readers ask: query, database, settings and param_* in the address, bodies
with gzip, and answers with ClickHouse's statuses, some requests at once. It ends when its input does, however whoever began
it has ended. POST /fail?n=N has the next N inserts done and answered as if they were not; /cut?n=N the
same with a connection that is cut.
"""
import gzip
import http.server
import os
import queue
import re
import sys
import tempfile
import threading
import urllib.parse

from chdb import session

# Each does one query after another.
sessions = queue.LifoQueue()
for _ in range(4):
    sessions.put(session.Session(sys.argv[1]))
# Of exceptions, by their codes; of others 500.
STATUS = {code: 400 for code in (6, 16, 26, 27, 36, 38, 41, 53, 62, 72, 115, 117, 130, 457)} | {60: 404, 81: 404}
faults = []


def run(asked, body):
    query = asked.pop("query", "")
    database = asked.pop("database", "default")
    fmt = asked.pop("default_format", "TabSeparated")
    asked.pop("wait_end_of_query", None)  # as it always is here
    parameters = {key[6:]: asked.pop(key) for key in list(asked) if key.startswith("param_")}
    settings = ", ".join(f"{key} = '{value}'" for key, value in asked.items())
    # In a query, rows that are no text would end with the first two bytes that make an empty line.
    rows = tempfile.NamedTemporaryFile() if query.endswith(" FORMAT Native") else None
    if rows:
        rows.write(body)
        rows.flush()
        query, body = query.replace(" FORMAT ", f" FROM INFILE '{rows.name}' FORMAT ", 1), b""
    if settings and query.startswith("INSERT"):
        query = query.replace(" FORMAT ", f" SETTINGS {settings} FORMAT ", 1)
    elif settings and body.lstrip().startswith(b"SELECT"):
        body += f" SETTINGS {settings}".encode()
    whole = query.encode() + b"\n" + body if query else body.decode()
    engine = sessions.get()
    try:
        engine.query(f"USE `{database}`")
        return engine.query(whole, fmt, params=parameters).bytes() or b""
    finally:
        sessions.put(engine)


# As a server that was just installed has.
sessions.queue[0].query("CREATE DATABASE IF NOT EXISTS profiles")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        address = urllib.parse.urlparse(self.path)
        asked = dict(urllib.parse.parse_qsl(address.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if address.path in ("/fail", "/cut"):
            faults.extend([address.path] * int(asked["n"]))
            return self.answer(200, b"")
        is_insert = asked.get("query", "").startswith("INSERT")
        try:
            answer, status = run(asked, body), 200
        except Exception as error:
            answer = str(error)
            code = re.match(r"Code: (\d+)", answer)
            answer, status = answer.encode(), STATUS.get(code and int(code[1]), 500)
        fault = faults.pop(0) if is_insert and faults else None
        if fault == "/cut":
            self.close_connection = True
            return self.connection.close()
        if fault:
            return self.answer(503, b"as if it were not done", {"Retry-After": "0"})
        self.answer(status, answer)

    def answer(self, status, body, headers={}):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
print(server.server_address[1], flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
os._exit(0)
