"""The engine of the chdb wheel as a server of its own, and rows of recordings as an agent makes them."""
import gzip
import itertools
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import urllib.parse
import urllib.request

here = pathlib.Path(__file__).parent
U64 = 2**64 - 1


class Engine:
    """server.py on a folder."""

    def __init__(self, folder, port=0):
        command = [sys.executable, str(here / "server.py"), folder, str(port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.address = f"127.0.0.1:{self.port}"

    def post(self, path, body=b"", headers={}, **asked):
        asked = urllib.parse.urlencode({"database": "profiles", **asked})
        address = f"http://{self.address}{path}?{asked}"
        with urllib.request.urlopen(urllib.request.Request(address, body, headers)) as answer:
            return answer.read().decode()

    def ask(self, sql):
        text = self.post("/", sql.encode(), default_format="JSONCompactEachRow")
        return [json.loads(line) for line in text.splitlines()]

    def insert(self, table, body, token=None):
        """The rows of a body by columns, or of a list of them."""
        form = "Native" if isinstance(body, bytes) else "JSONEachRow"
        if form != "Native":
            body = "\n".join(map(json.dumps, body)).encode()
        once = {"async_insert_deduplicate": 1, "insert_deduplicate": 1, "insert_deduplication_token": token} if token else {}
        query = f"INSERT INTO {table} FORMAT {form}"
        body = gzip.compress(body, 1)
        self.post("/", body, {"Content-Encoding": "gzip"}, query=query, async_insert=1, wait_for_async_insert=1, **once)

    def make_tables(self):
        statements = (here / "../../collector/src/clickhouse/schema.sql").resolve().read_text()
        for statement in "\n".join(line.split("--")[0] for line in statements.splitlines()).split(";"):
            if statement.strip():
                self.post("/", statement.encode())

    def end(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def run(*command, **more):
    return subprocess.run(command, check=True, text=True, capture_output=True, **more)


class Rows:
    """Those of a whole recording, as the agent makes them of a window."""

    def __init__(self, rsunwind, recording, attributes):
        parts = dict(fields(message(rsunwind, recording, attributes)))
        frames, texts, stacks = (dict(fields(parts[number])) for number in (2, 6, 7))
        ends = [0, *fixed(texts[2], "I")]
        strings = [texts[1][begin:end].decode() for begin, end in itertools.pairwise(ends)]
        texts = ["function", "short", "file", "binary", "build_id", "language"]
        names = ["function", "short", "file", "line", "binary", "build_id", "language", "inlined"]
        columns = {name: fixed(frames[number], "I") for number, name in enumerate(names, 10)}
        columns |= {name: [strings[place] for place in columns[name]] for name in texts}
        hashes = fixed(frames[1], "Q")
        service = {"service": attributes["service.name"]}
        self.frames = [service | dict(zip(["hash", *names], row)) for row in zip(hashes, *(columns[name] for name in names))]
        innermost, back, frame = (fixed(stacks[number], "I") for number in (2, 3, 4))

        def callers(call):
            yield hashes[frame[call]]
            while back[call]:
                call -= back[call]
                yield hashes[frame[call]]

        self.stacks = [service | {"frames": list(callers(call))} for call in innermost]
        # By columns.
        self.window, self.samples = (gzip.decompress(parts[number]) for number in (4, 5))

    def insert(self, engine, token):
        engine.insert("rsunwind_frames", self.frames)
        engine.insert("rsunwind_stacks", self.stacks)
        engine.insert("rsunwind_windows", self.window, token)
        engine.insert("rsunwind_samples", self.samples, token)


def varints(body):
    """Seven bits in each byte, the lowest first."""
    number = shift = 0
    for byte in body:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0


def fields(body):
    """The numbers of a protocol buffer's fields, and their values."""
    at = 0

    def varint():
        nonlocal at
        begin = at
        while body[at] >= 0x80:
            at += 1
        at += 1
        return next(varints(body[begin:at]))

    while at < len(body):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
            continue
        length = varint() if kind == 2 else 8
        value = body[at : at + length]
        at += length
        yield number, value if kind == 2 else int.from_bytes(value, "little")


def fixed(body, kind):
    return [number for [number] in struct.iter_unpack(f"<{kind}", body)]


def begin_of(body, name, kind):
    """Where a column begins in rows by columns, behind its head."""
    head = bytes([len(name)]) + name.encode() + bytes([len(kind)]) + kind.encode()
    [begin] = [found.end() for found in re.finditer(re.escape(head), body)]
    return begin


def column(body, name, kind, width):
    """Where the numbers of a column begin in rows by columns, and what they are."""
    begin = begin_of(body, name, kind)
    # The second number of all; seven bits in each byte, the lowest first.
    length = next(at for at in itertools.count(1) if body[at] < 0x80)
    rows = sum((body[at] & 0x7F) << 7 * (at - 1) for at in range(1, length + 1))
    return begin, list(struct.unpack_from(f"<{rows}{width}", body, begin))


def few(body, name, kind, width):
    """The numbers of a column of which few differ: it has each of those once, and where each row's is."""
    begin = begin_of(body, name, f"LowCardinality({kind})")
    _, form, number = struct.unpack_from("<3Q", body, begin)
    keys = struct.unpack_from(f"<{number}{width}", body, begin + 24)
    begin += 24 + struct.calcsize(f"<{number}{width}")
    [rows] = struct.unpack_from("<Q", body, begin)
    return [keys[place] for place in struct.unpack_from(f"<{rows}{'BHI'[form & 3]}", body, begin + 8)]


def message(rsunwind, recording, attributes):
    request = {
        "paths": [list(os.fsencode(os.path.abspath(recording)))],
        "names": list(os.fsencode(os.path.abspath("names"))),
        "thorough": False,
        "processes": [],
        "each": False,
        "window": [0, U64, 0, U64],
        "forms": ["rows"],
        "attributes": attributes,
        "books": {"late": [], "beside": [], "threads": [], "lives": [], "sent": 0, "owed": [0] * 7},
    }
    out = subprocess.run([rsunwind, "agent-window"], input=json.dumps(request).encode(), capture_output=True, check=True)
    return out.stdout.split(b"\n", 1)[1]


def shown(name, value):
    print(f"{name:58} {value}", flush=True)


def equal(name, one, other):
    shown(name, one)
    if one != other:
        sys.exit(f"{name}: {one} is not {other}")
