"""What tests/clickhouse/fleet does: fleet.py RSUNWIND AGENTS WINDOWS."""
import collections
import hashlib
import http.client
import itertools
import os
import pathlib
import queue
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error

from engine import Engine, Rows, column, equal, few, run, shown

rsunwind, agents, windows = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
place = tempfile.TemporaryDirectory(prefix="rsunwind-fleet-")
os.chdir(place.name)
WINDOW, SERVICES, SENDERS = 15, 20, 8
# Half of a processor, so many seconds: a service that waits, one that computes, and a script.
PROGRAM = """
import hashlib, json, random, re, time, zlib
words = ["".join(random.choices("abcdefgh ", k=40)) for _ in range(200)]
def parse(text): return json.loads(json.dumps({"a": [text] * 20}))
def search(all): return [re.sub("(a|b)+c?", lambda found: found[0][::-1], text) for text in all]
def pack(all): return hashlib.sha256(zlib.compress("".join(all).encode())).hexdigest()
def deeper(depth, then): return deeper(depth - 1, then) if depth else then()
def serve(n): deeper(n % 12, [lambda: parse(words[n % 200]), lambda: search(words), lambda: pack(words)][n % 3])
end = time.monotonic() + WINDOW
n = 0
while time.monotonic() < end:
    begin = time.monotonic()
    while time.monotonic() < begin + 0.05:
        serve(n)
        n += 1
    time.sleep(0.05)
"""
pathlib.Path("service.py").write_text(PROGRAM.replace("WINDOW", str(WINDOW)))
PROGRAMS = [
    ["python3", "service.py"],
    ["sh", "-c", "end=$(($(date +%s) + 14)); while [ $(date +%s) -lt $end ]; do head -c 3000000 /dev/urandom | gzip -9 | sha256sum; sleep 0.1; done"],
    ["sh", "-c", "end=$(($(date +%s) + 14)); while [ $(date +%s) -lt $end ]; do sort -R /etc/services | awk '{n[$1]++} END {print length(n)}'; done"],
]
TIME = "DateTime64(3, 'UTC')"
begin_s = int(time.time()) // 60 * 60 - windows * WINDOW


# What each agent's rows have instead; as long as that, so that only bytes are replaced.
SERVICE, HOST = "a service--", "a host---"


class Template:
    """A recorded window, as any agent may have it at any time."""

    def __init__(self, rows):
        self.rows = rows
        self.weights = few(rows.samples, "weight", "UInt32", "I")
        self.cpu_ns = sum(few(rows.samples, "cpu_ns", "UInt64", "Q"))
        self.weight = sum(self.weights)
        self.first_ms = column(rows.window, "begin", TIME, "q")[1][0]
        self.token = struct.pack("<Q", column(rows.window, "window", "UInt64", "Q")[1][0])

    def at(self, number):
        """Its rows of samples, and of the window, as the one of that number."""
        shift = (begin_s + number * WINDOW) * 1000 - self.first_ms

        def moved(body, *names):
            body = bytearray(body)
            for name in names:
                begin, times = column(bytes(body), name, TIME, "q")
                struct.pack_into(f"<{len(times)}q", body, begin, *(time + shift for time in times))
            return bytes(body)

        return moved(self.rows.samples, "time"), moved(self.rows.window, "begin", "end")


def window_id(agent, number):
    return int.from_bytes(hashlib.blake2b(f"{agent} {number}".encode(), digest_size=8).digest(), "little")


templates = []
for at, recording in enumerate([subprocess.Popen([rsunwind, "record", "-q", "-F", "49", "-o", f"{at}.rsu", "--", *program], stdout=subprocess.DEVNULL) for at, program in enumerate(PROGRAMS)]):
    recording.wait()
    attributes = {"service.name": SERVICE, "host.name": HOST, "service.version": "1.0"}
    templates.append(Template(Rows(rsunwind, f"{at}.rsu", attributes)))
shown("samples in each of the recorded windows", ", ".join(str(len(one.weights)) for one in templates))

engine = Engine("db")
engine.make_tables()
acknowledged, retries = set(), collections.Counter()
tasks, half, alive = queue.Queue(maxsize=4 * SENDERS), threading.Event(), threading.Event()
alive.set()


def insist(table, body, token=None):
    """As an agent: until it is taken."""
    for turn in itertools.count():
        try:
            return engine.insert(table, body, token)
        except urllib.error.HTTPError as error:
            if error.code < 500:
                sys.exit(f"{table}: {error.code} {error.read()[:300]}")
            retries[error.code] += 1
        except (OSError, http.client.HTTPException):
            retries["no answer"] += 1
        time.sleep(0.05 * min(turn + 1, 20))
        alive.wait()


def send():
    while (task := tasks.get()) is not None:
        agent, number, template, (samples, window) = task
        token = window_id(agent, number)
        names = {SERVICE: f"service-{agent % SERVICES:03}", HOST: f"host-{agent:04}"}
        replaced = {name.encode(): own.encode() for name, own in names.items()} | {template.token: struct.pack("<Q", token)}
        for name, value in replaced.items():
            samples, window = samples.replace(name, value), window.replace(name, value)
        if number == 0:
            of_service = {"service": names[SERVICE]}
            insist("rsunwind_frames", [row | of_service for row in template.rows.frames])
            insist("rsunwind_stacks", [row | of_service for row in template.rows.stacks])
        insist("rsunwind_windows", window, f"{token:016x}")
        insist("rsunwind_samples", samples, f"{token:016x}")
        acknowledged.add(token)


senders = [threading.Thread(target=send, daemon=True) for _ in range(SENDERS)]
for sender in senders:
    sender.start()
began = time.monotonic()
down_s = 0
for number in range(windows):
    if number == windows // 2:
        # Answers are lost, and then it is killed and begins again.
        engine.post("/fail", n=agents // 10)
        engine.post("/cut", n=agents // 10)
    if number == windows // 2 + 1:
        before = time.monotonic()
        alive.clear()
        engine.end()
        engine = Engine("db", engine.port)
        alive.set()
        down_s = time.monotonic() - before
    made = [one.at(number) for one in templates]
    for agent in range(agents):
        kind = agent % len(templates)
        tasks.put((agent, number, templates[kind], made[kind]))
for _ in senders:
    tasks.put(None)
for sender in senders:
    sender.join()
took = time.monotonic() - began - down_s
sent = [templates[agent % len(templates)] for agent in range(agents)]
rows = windows * sum(len(one.weights) for one in sent)
shown("agents, windows, samples", f"{agents:,}, {agents * windows:,}, {rows:,}")
shown("windows, samples a second", f"{agents * windows / took:,.0f}, {rows / took:,.0f}")
shown("agents that so many windows are of, at one in 15 s", f"{agents * windows / took * WINDOW:,.0f}")
shown("tried again, by the answer", dict(retries))
if not retries:
    sys.exit("no fault was met")
account = [agents * windows, rows, windows * sum(one.weight for one in sent), windows * sum(one.cpu_ns for one in sent)]
[there] = engine.ask("SELECT uniqExact(window), count(), sum(weight), sum(cpu_ns) FROM rsunwind_samples")
equal("windows, rows, weight, ns, as they were sent", there, account)
equal("windows that were acknowledged", len(acknowledged), agents * windows)
[there] = engine.ask("SELECT count(), sum(rows), sum(weight), sum(cpu_ns) FROM rsunwind_windows")
equal("the same by the windows' account", there, account)
unknown = "SELECT count() FROM rsunwind_samples WHERE (service, stack) NOT IN (SELECT service, hash FROM rsunwind_stacks)"
equal("samples whose stack is not there", engine.ask(unknown), [[0]])
unknown = "SELECT count() FROM (SELECT service, arrayJoin(frames) AS f FROM rsunwind_stacks) WHERE (service, f) NOT IN (SELECT service, hash FROM rsunwind_frames)"
equal("stacks whose frames are not there", engine.ask(unknown), [[0]])
parts = "SELECT sum(data_compressed_bytes) / sum(rows), count() FROM system.parts WHERE active AND table = 'rsunwind_samples'"
[[size, count]] = engine.ask(parts)
shown("bytes of a sample as it is then, in parts", f"{size:.2f}, {count}")
engine.ask("OPTIMIZE TABLE rsunwind_samples FINAL")
[[size, count]] = engine.ask(parts)
shown("bytes of a sample when all parts are one", f"{size:.2f}")


def timed(name, *command):
    begin = time.monotonic()
    run(rsunwind, *command)
    shown(name, f"{time.monotonic() - begin:.2f} s")


address = f"clickhouse://{engine.address}/profiles?from={begin_s}&to={begin_s + windows * WINDOW + 60}"
middle = begin_s + windows * WINDOW // 2
timed("rsunwind report, one service", "report", f"{address}&service=service-003")
timed("rsunwind report, all services and hosts", "report", address)
timed("rsunwind diff, all of it by time", "diff", address.replace(f"to={begin_s + windows * WINDOW + 60}", f"to={middle}"), address.replace(f"from={begin_s}", f"from={middle}"))
engine.end()
