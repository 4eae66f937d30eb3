//! What `rsunwind agent` takes on its command line.

use super::windows;
use crate::underway::Target;
use crate::units;
use clap::Args as ClapArgs;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `rsunwind agent`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
The program keeps its input, output, signals and terminal, and its exit status becomes that of rsunwind.
SIGHUP reads the settings anew; SIGTERM reaches the program, or ends the recording of -p and -a.

Examples:
  rsunwind agent --otlp http://localhost:4318 -- ./server
  rsunwind agent --pyroscope http://pyroscope:4040 --label version=1.2 -p nginx
  rsunwind agent --clickhouse http://clickhouse:8123/profiles -a
  rsunwind agent --files /var/lib/profiles --config /etc/rsunwind/agent.toml -- ./server")]
pub struct Args {
    /// Samples per second of CPU time, per thread
    #[arg(short = 'F', long, value_name = "HZ", default_value = "49", value_parser = units::Rate::parse)]
    pub rate: units::Rate,

    /// Limit on the share of the program's CPU time that samples take, 0.1% or more [default: 25%]
    #[arg(long, value_name = "SHARE", value_parser = units::Share::parse, conflicts_with_all = ["pid", "all"])]
    pub max_overhead: Option<units::Share>,

    /// Length of a window, 2s or more [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = window_length)]
    pub window: Option<Duration>,

    /// Send to an OpenTelemetry receiver over HTTP [default: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL")]
    pub otlp: Vec<String>,

    /// Send to Pyroscope
    #[arg(long, value_name = "URL")]
    pub pyroscope: Vec<String>,

    /// Send to Parca
    #[arg(long, value_name = "URL")]
    pub parca: Vec<String>,

    /// Send to ClickHouse, to the database of that name [default name: default]
    #[arg(long, value_name = "URL")]
    pub clickhouse: Vec<String>,

    /// Write pprof files to a folder; the oldest are deleted when it is full
    #[arg(long, value_name = "DIR")]
    pub files: Vec<String>,

    /// What the service is called [default: OTEL_SERVICE_NAME, or the program's name]
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,

    /// Label everything that is sent (may be given several times)
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,

    /// Folder for windows that cannot be sent yet and do not fit in memory; it outlives the agent
    #[arg(long, value_name = "DIR")]
    pub spool: Option<PathBuf>,

    /// Settings (TOML); SIGHUP rereads them
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Say how many windows were sent even if all were
    #[arg(short, long)]
    pub verbose: bool,

    /// Everything on the machine (as root)
    #[arg(short, long, group = "target")]
    pub all: bool,

    /// With -a: send only the processes with these names, separated by commas
    #[arg(long, value_name = "NAMES", requires = "all")]
    pub processes: Option<String>,

    /// What is recorded
    #[command(flatten)]
    pub target: Target,
}

impl Args {
    /// Whether what is recorded runs already, and is not started.
    pub(super) const fn is_running(&self) -> bool {
        self.all || self.target.pid.is_some()
    }
}

pub(super) fn window_length(text: &str) -> Result<Duration, String> {
    let length = units::duration(text)?;
    match length < windows::SHORTEST {
        true => Err("windows are of 2s or more".into()),
        false => Ok(length),
    }
}
