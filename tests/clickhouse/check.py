"""What tests/clickhouse/check does: check.py RSUNWIND ROWS."""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse

from engine import Engine, Rows, equal, few, run, shown

rsunwind, rows = os.path.abspath(sys.argv[1]), int(sys.argv[2])
document = (pathlib.Path(__file__).resolve().parent / "../../docs/clickhouse.md").read_text()
place = tempfile.TemporaryDirectory(prefix="rsunwind-clickhouse-")
os.chdir(place.name)
PROGRAM = """
import time
def parse(n): return sum(i * i for i in range(n))
def outer(): parse(20000)
end = time.process_time() + float(__import__('sys').argv[1])
while time.process_time() < end: outer()
"""
pathlib.Path("works.py").write_text(PROGRAM)
works = ["python3", "works.py"]


def folded(source):
    """Stacks and their weights, but for CPU time in no sample, which a part names less finely."""
    out = run(rsunwind, "export", source, "-f", "folded", "-o", "-", "--whole-names").stdout
    found = collections.Counter()
    for line in out.splitlines():
        stack, weight = line.rsplit(" ", 1)
        if not stack.rsplit(";", 1)[-1].startswith("["):
            # Processes of one name are one in the tables.
            found[re.sub(r" \(\d+\)", "", stack)] += int(weight)
    return found


engine = Engine("db")
engine.make_tables()

# What is in the engine is what was recorded, however often it is sent.
run(rsunwind, "record", "-q", "-F", "997", "-o", "a.rsu", "--", *works, "1")
attributes = {"service.name": "equal", "host.name": "here", "it's": "x'; DROP TABLE y\\"}
rows_of = Rows(rsunwind, "a.rsu", attributes)
for _ in range(2):
    rows_of.insert(engine, "t")
weights, times = few(rows_of.samples, "weight", "UInt32", "I"), few(rows_of.samples, "cpu_ns", "UInt64", "Q")
[sent] = engine.ask("SELECT count(), sum(weight), sum(cpu_ns) FROM rsunwind_samples")
equal("rows, weight, ns, sent twice", sent, [len(weights), sum(weights), sum(times)])
[account] = engine.ask("SELECT sum(rows), sum(weight), sum(cpu_ns) FROM rsunwind_windows")
equal("the same by the windows' account", account, sent)
source = f"clickhouse://{engine.address}/profiles?service=equal&from=2020-01-01"
there, recorded = folded(source), folded("a.rsu")
equal("stacks, as in the recording", len(there), len(recorded))
if there != recorded:
    sys.exit(f"stacks differ: {(there - recorded).most_common(3)}, {(recorded - there).most_common(3)}")
hostile = source + "&label.it%27s=" + urllib.parse.quote("x'; DROP TABLE y\\")
equal("found by a hostile label", folded(hostile) == recorded, True)
equal("found by its beginning", "has no sample" in subprocess.run([rsunwind, "report", hostile[:-1]], text=True, capture_output=True).stderr, True)

# Every statement of the document, of a service that has just worked.
Rows(rsunwind, "a.rsu", {"service.name": "shop", "host.name": "here", "service.version": "1.2"}).insert(engine, "shop")
equal("both services together", folded(source.replace("service=equal&", "")) == recorded + recorded, True)
statements = re.findall("```sql\n(.*?)```", document, re.S)
equal("statements in the document", len(statements), 4)
by_function, below_parse, by_route, by_version = [engine.ask(statement) for statement in statements]
whole = round(sent[2] / 1e9, 2)
shown("the functions of most CPU time, s", [row[:2] for row in by_function[:3]])
if not 0.5 * whole < sum(row[1] for row in by_function) <= whole + 0.1:
    sys.exit(f"{by_function} are not most of {whole} s")
below = sum(row[2] for row in below_parse) * 60
shown("below a function, s", round(below, 2))
if not 0.8 * whole < below <= whole + 0.01:
    sys.exit(f"{below_parse} is not nearly {whole} s")
equal("by a region's label, s", [[route, round(s, 2)] for route, s in by_route], [["", whole]])
equal("by version, s", [[version, hosts, round(s, 2)] for version, hosts, s in by_version], [["1.2", 1, whole]])

# An agent, whose receiver says that it has not done what it has, cuts connections, and is killed.
engine.post("/fail", n=3)
engine.post("/cut", n=2)
command = [rsunwind, "agent", "-v", "-F", "199", "--window", "2s", "--service", "faults", "--clickhouse", f"http://{engine.address}/profiles", "--", *works, "12"]
agent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
time.sleep(7)
engine.end()
time.sleep(2)
engine = Engine("db", engine.port)
says = agent.communicate()[1]
windows = "SELECT count(), sum(rows), sum(weight), sum(cpu_ns) FROM rsunwind_windows FINAL WHERE service = 'faults'"
[account] = engine.ask(windows)
[sent] = engine.ask("SELECT uniqExact(window), count(), sum(weight), sum(cpu_ns) FROM rsunwind_samples WHERE service = 'faults'")
if sent != account:
    print(says, end="")
equal("windows, rows, weight, ns after faults and kill -9", sent, account)
equal("windows, as the agent says", f"{sent[0]} windows sent" in says, True)
names = "SELECT uniqExact(stack) FROM rsunwind_samples WHERE service = 'faults' AND stack NOT IN (SELECT hash FROM rsunwind_stacks WHERE service = 'faults' AND {})"
equal("stacks without their frames", engine.ask(names.format("arrayAll(f -> f IN (SELECT hash FROM rsunwind_frames WHERE service = 'faults'), frames)")), [[0]])
seconds = sent[3] / 1e9
shown("CPU time of it, s", round(seconds, 2))
if not 12 <= seconds < 14:
    sys.exit(f"{seconds} s of 12: {says}")

# Bytes and times, of samples that are made up.
step = 1_000_000
for at in range(0, rows, step):
    engine.ask(f"""INSERT INTO rsunwind_samples SELECT concat('svc', toString(number % 20)),
        toDateTime64('2026-11-22 10:00:00', 3, 'UTC') + (number / {rows}) * 3600,
        concat('host', toString(intDiv(number, 20) % 1000)), 'server', 1000 + number % 7,
        concat('worker-', toString(number % 16)), 2000 + number % 16, 'native',
        cityHash64((number % 20) * 50000 + toUInt64(50000 * pow((cityHash64(number) % 1000000) / 1000000.0, 4))),
        1, 10101010, intDiv(number, 450), CAST(map(), 'Map(String, String)') FROM numbers({at}, {min(step, rows - at)})""")
engine.ask("""INSERT INTO rsunwind_frames SELECT concat('svc', toString(intDiv(number, 60000))), number % 60000,
    concat('function', toString(number % 60000)), '', 'file.c', 1, '/bin/server', '', 'native', 0 FROM numbers(20 * 60000)""")
engine.ask("""INSERT INTO rsunwind_stacks SELECT concat('svc', toString(intDiv(number, 50000))), cityHash64(number), arrayReverse(arrayMap(i -> cityHash64(i, bitShiftRight(number,
    toUInt8(greatest(0, 20 - intDiv(i, 2))))) % 60000, range(30 + number % 20))) FROM numbers(1000000)""")
engine.ask("OPTIMIZE TABLE rsunwind_samples FINAL")
[[size]] = engine.ask("SELECT sum(data_compressed_bytes) / sum(rows) FROM system.parts WHERE active AND table = 'rsunwind_samples'")
shown(f"bytes of a row, of {rows:,}", round(size, 2))


def timed(name, work):
    begin = time.monotonic()
    work()
    shown(name, f"{time.monotonic() - begin:.2f} s")


during = "time >= '2026-11-22 10:00:00' AND time < '2026-11-22 11:00:00'"
timed("one service and hour by stack", lambda: engine.ask(f"SELECT stack, sum(cpu_ns) FROM rsunwind_samples WHERE service = 'svc3' AND {during} GROUP BY stack"))
timed("all services and hosts by stack", lambda: engine.ask("SELECT count(), sum(w) FROM (SELECT stack, sum(cpu_ns) AS w FROM rsunwind_samples GROUP BY stack)"))
address = f"clickhouse://{engine.address}/profiles?service=svc3&from=2026-11-22T10:00:00Z&to=2026-11-22T11:00:00Z"
timed("rsunwind report, one service and hour", lambda: run(rsunwind, "report", address))
everything = address.replace("service=svc3&", "")
timed("rsunwind report, all services", lambda: run(rsunwind, "report", everything))
equal("what is above it", run(rsunwind, "report", everything).stdout.splitlines()[1].split(" in ")[1], f"{rows} samples of 1 process")
some = everything.replace("10:00:00Z", "10:10:20.5Z").replace("11:00:00Z", "10:15:40Z")
timed("rsunwind report, all services, five minutes", lambda: run(rsunwind, "report", some))
counted = "SELECT count() FROM rsunwind_samples WHERE service LIKE 'svc%' AND time >= '2026-11-22 10:10:20.500' AND time < '2026-11-22 10:15:40'"
equal("what is above that", run(rsunwind, "report", some).stdout.splitlines()[1].split(" in ")[1], f"{engine.ask(counted)[0][0]} samples of 1 process")
timed("the same by thread", lambda: run(rsunwind, "report", everything, "--by", "thread"))
spent = json.loads(run(rsunwind, "report", everything, "--by", "thread", "--format", "json").stdout)
equal("CPU time of all services, ns", spent["total"], rows * 10101010)
equal("threads", len(spent["rows"]), 16)
timed("rsunwind diff, its halves", lambda: run(rsunwind, "diff", address.replace("11:00", "10:30"), address.replace("from=2026-11-22T10:00", "from=2026-11-22T10:30")))
engine.end()
