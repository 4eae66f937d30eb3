-- Profiles of a fleet in ClickHouse. `rsunwind agent` makes these tables where they
-- are missing. All times are UTC, all durations ns of CPU time.

-- A sample, or a remainder of CPU time that is in none: so much CPU time of a thread in a stack.
CREATE TABLE IF NOT EXISTS rsunwind_samples (
    service LowCardinality(String),
    time DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    host LowCardinality(String),
    process LowCardinality(String),
    pid UInt32 CODEC(ZSTD(1)),
    thread LowCardinality(String),
    tid UInt32 CODEC(ZSTD(1)),
    -- Of the innermost frame: native, kernel, python, …; none for a remainder.
    language LowCardinality(String),
    -- rsunwind_stacks.hash
    stack UInt64 CODEC(ZSTD(1)),
    -- Sampling periods.
    weight UInt32 CODEC(ZSTD(1)),
    cpu_ns UInt64 CODEC(ZSTD(1)),
    -- rsunwind_windows.window
    window UInt64 CODEC(ZSTD(1)),
    -- Of the regions that the program said it was in: route, trace_id, span_id, …; of several
    -- processes also container.id, k8s.pod.uid, linux.cgroup.path.
    regions Map(LowCardinality(String), String) CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (service, toStartOfMinute(time), host, time)
SETTINGS non_replicated_deduplication_window = 100000;

-- What an agent has sent at once: its account, and what is said of where it is from.
CREATE TABLE IF NOT EXISTS rsunwind_windows (
    window UInt64,
    service LowCardinality(String),
    host LowCardinality(String),
    begin DateTime64(3, 'UTC'),
    end DateTime64(3, 'UTC'),
    -- The sums of its rows in rsunwind_samples.
    rows UInt32,
    weight UInt64,
    cpu_ns UInt64,
    -- Attributes by OpenTelemetry's names: service.version, container.id, k8s.pod.uid, …
    labels Map(LowCardinality(String), String)
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(begin)
ORDER BY (service, begin, host, window)
SETTINGS non_replicated_deduplication_window = 100000;

-- A stack: the frames from the innermost (frames[1]) to where the thread begins.
CREATE TABLE IF NOT EXISTS rsunwind_stacks (
    -- What a report of one service needs lies together.
    service LowCardinality(String),
    -- What agents send is the frames alone.
    hash UInt64 DEFAULT xxHash64(arrayStringConcat(frames, ',')),
    -- rsunwind_frames.hash
    frames Array(UInt64) CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree
ORDER BY (service, hash);

CREATE TABLE IF NOT EXISTS rsunwind_frames (
    service LowCardinality(String),
    -- Of all that follows; the last two bytes are the line's.
    hash UInt64,
    function String,
    -- The same without template arguments and parameters.
    short String,
    file String,
    -- 0 if unknown.
    line UInt32,
    binary LowCardinality(String),
    build_id String,
    -- native, kernel, none for a note in the place of frames, or a language: python, javascript, …
    language LowCardinality(String),
    -- How often it was inlined into the next; 0 for the function that the code is of.
    inlined UInt32
)
ENGINE = ReplacingMergeTree
ORDER BY (service, hash);
