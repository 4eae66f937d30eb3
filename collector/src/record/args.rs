//! What `rsunwind record` takes on its command line. Numbers with units are read in
//! [`crate::units`].

use crate::exec_watch;
use crate::processes;
use crate::units;
use clap::{Args as ClapArgs, ValueEnum};
use engine::affordable;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `rsunwind record`.
#[derive(Clone, Debug, ClapArgs)]
#[command(override_usage = "\
rsunwind record [OPTIONS] [--] COMMAND [ARGUMENTS]...
       rsunwind record [OPTIONS] -p PID | -a")]
#[command(after_help = "\
The program keeps its input, output, signals and terminal; its exit status becomes that of rsunwind (128+N if signal N ended it).
Ctrl-C and SIGTERM reach it once, and the profile is written whatever ends it.

Examples:
  rsunwind record -- ./program arguments            then rsunwind report
  rsunwind record -o profile.html -- ./program      a page to look around in
  rsunwind record -F 99 -d 30s -- ./server          99 samples a second of CPU time, for 30 s
  rsunwind record --off-cpu -- ./program            where it waits, too
  rsunwind record -e page-faults -- ./program       and where memory is touched first")]
pub struct Args {
    /// Samples per second of CPU time, per thread: 99, 1k, 0.5
    #[arg(short = 'F', long, value_name = "HZ", default_value = "999", value_parser = units::Rate::parse)]
    pub rate: units::Rate,

    /// Limit on the share of the program's CPU time that samples take: 1%, 2.5%. If -F asks for
    /// more, samples come less often, and each stands for several periods [default: 25%]
    #[arg(long, value_name = "SHARE", value_parser = units::Share::parse)]
    pub max_overhead: Option<units::Share>,

    /// Also sample these events, named as perf does: page-faults, cycles, sched:sched_switch …;
    /// NAME:u in user mode only, NAME/period=N/ every Nth (may be given several times)
    #[arg(short = 'e', long = "event", value_name = "EVENTS")]
    pub events: Vec<String>,

    /// Also record time off the CPU: each time that a thread waits or is preempted, for how long,
    /// with its kernel and user stack (rsunwind report --event off-cpu)
    #[arg(long)]
    pub off_cpu: bool,

    /// Record wall-clock time: CPU time and time off the CPU, shown as one
    #[arg(long)]
    pub wall: bool,

    /// Stop after this long (10, 10s, 500ms, 2m): a program that was started gets SIGTERM, and
    /// dying of it counts as success
    #[arg(short, long, value_name = "TIME", value_parser = units::duration)]
    pub duration: Option<Duration>,

    /// With -d: leave the program running when the time is over, unprofiled from then on
    #[arg(long, requires = "duration")]
    pub detach: bool,

    /// When the command has ended, go on until all of its descendants have ended (or until a
    /// signal)
    #[arg(long)]
    pub wait: bool,

    /// Where the profile is written once it is complete; an older file is replaced. %p is the
    /// program's pid, %t the time in seconds since 1970, %h this machine's name [default:
    /// rsunwind.rsu, of which an older one becomes rsunwind.rsu.old]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Time limit for looking up names, which are stored in the recording so that it can be read
    /// without the programs; 0 stores none
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::patience)]
    pub names: Duration,

    /// Leave the recording as it was written, longer, for who reads it meanwhile and knows places
    /// in it
    #[arg(long, hide = true)]
    pub plain: bool,

    /// Look for what is new every two seconds only, where little is: who reads the recording
    /// meanwhile can wait
    #[arg(long, hide = true)]
    pub can_wait: bool,

    /// Format of the profile [default: by the extension of FILE]
    #[arg(short, long)]
    pub format: Option<String>,

    /// What triggers samples
    #[arg(long, value_enum, default_value_t)]
    pub trigger: Trigger,

    /// The signal that asks a thread for a sample
    #[arg(long, value_enum, default_value_t)]
    pub signal: Signal,

    /// Which unwind tables are used
    #[arg(long, value_enum, default_value_t)]
    pub unwind: Unwind,

    /// Frames kept per stack, 8 to 4096; deeper stacks keep both ends
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(8..=4096))]
    pub max_depth: u32,

    /// Maximum shared memory per process (suffixes K, M, G); samples beyond it are counted as lost
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = units::size)]
    pub size: u64,

    /// Do not profile programs that are started with an environment of their own
    #[arg(long)]
    pub no_follow: bool,

    /// Make the JVM and .NET name the code that they compile, and the JVM keep frame pointers in
    /// it. Sets JAVA_TOOL_OPTIONS, which the JVM mentions on stderr, and DOTNET_PerfMapEnabled; the
    /// names stay behind in /tmp/perf-PID.map
    #[arg(long, conflicts_with_all = ["pid", "all"])]
    pub jit_names: bool,

    /// Print only errors
    #[arg(short, long)]
    pub quiet: bool,

    /// Print the whole summary, instead of three lines: what was recorded, where most of it went,
    /// and what is wrong with it
    #[arg(short, long)]
    pub verbose: bool,

    /// Record running processes, and what they start from now on: pids or names, separated by
    /// commas. Ctrl-C or -d ends the recording, never the processes
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<String>,

    /// With -p: how stacks are taken
    #[arg(long, value_enum, default_value_t, requires = "pid")]
    pub how: How,

    /// Record everything on this machine, until Ctrl-C or for the time given by -d
    #[arg(short, long)]
    pub all: bool,

    /// Accepted as perf's flag for call graphs, which are always recorded
    #[arg(short = 'g', hide = true)]
    pub with_stacks: bool,

    /// perf's way to say how stacks are found
    #[arg(long, hide = true, value_name = "HOW")]
    pub call_graph: Option<String>,

    /// perf's period in events
    #[arg(short = 'c', long, hide = true, value_name = "EVENTS")]
    pub count: Option<String>,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl Args {
    /// What samples may take of the program's CPU time.
    #[must_use]
    pub fn share(&self) -> units::Share {
        self.max_overhead.unwrap_or_default()
    }

    /// Whether time off the CPU is to be recorded.
    #[must_use]
    pub const fn records_off_cpu(&self) -> bool {
        self.off_cpu || self.wall
    }

    /// Whether it is noticed that programs begin: then those that cannot load the preload library
    /// are copied, and events opened on those that have it linked in. Not where a share was said:
    /// the events that tell of programs are in force in all threads, and take at each context
    /// switch and for each thread what no rate makes less.
    #[must_use]
    pub fn notices_programs(&self) -> bool {
        let may = !self.no_follow && !affordable::is_exact(self.share().0);
        // Programs are looked at in `/proc`.
        let may = may && exec_watch::is_possible() && processes::proc_is_ours();
        may && self.trigger != Trigger::Timer
    }

    /// Whether processes are to be recorded that run already.
    #[must_use]
    pub const fn records_running(&self) -> bool {
        self.all || self.pid.is_some()
    }
}

/// What asks a thread for samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Trigger {
    /// The best that is permitted
    #[default]
    Auto,
    /// perf events, or nothing
    Perf,
    /// CPU timers, limited to the kernel's tick
    Timer,
}

/// How stacks of processes that run already come about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum How {
    /// From inside where that shows more (functions of Python and JavaScript) and nothing rules it
    /// out; else by copies
    #[default]
    Auto,
    /// The kernel copies the upper part of each stack: the process is not touched
    Copies,
    /// A library is loaded into the process, so that its threads unwind themselves in user mode,
    /// and unloaded at the end; stacks of time in the kernel, and of what the process starts, are
    /// copied
    Inside,
}

/// The signal by which a thread is asked to unwind itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Signal {
    /// SIGURG, which does no harm if it comes too late; SIGPROF in programs that use SIGURG
    /// themselves
    #[default]
    Auto,
    /// SIGPROF
    Prof,
    /// SIGURG
    Urg,
}

/// Which unwind tables are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Unwind {
    /// The best that each module has
    #[default]
    Auto,
    /// SFrame, then frame pointers
    Sframe,
    /// .eh_frame, then frame pointers
    #[value(name = "eh_frame")]
    EhFrame,
    /// Frame pointers only
    Fp,
}

impl Trigger {
    /// As the `RSUNWIND` variable spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Perf => "perf",
            Self::Timer => "timer",
        }
    }
}

impl Signal {
    /// As the `RSUNWIND` variable spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Prof => "prof",
            Self::Urg => "urg",
        }
    }
}

impl Unwind {
    /// As the `RSUNWIND` variable spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Sframe => "sframe",
            Self::EhFrame => "eh_frame",
            Self::Fp => "fp",
        }
    }
}
