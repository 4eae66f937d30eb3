//! The process that reads windows, one after the other: it keeps names. What it takes of memory for
//! a while is given back by its end, which is not before it has taken much.
//!
//! Start at [`Reader::cut`], which is on the agent's side, and [`run`], which is on the other: a
//! line of JSON goes to its standard input for each window, and what it has made comes out of its
//! standard output, a line of JSON and then the messages that the line has the lengths of.
//!
//! Not here: what is made of a window ([`super::window`]).

use super::containers::Containers;
use super::meanwhile::Wait;
use super::names::Names;
use super::window::{Made, Request, make};
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The hidden subcommand.
const COMMAND: &str = "agent-window";
/// A file that is read for names may lie where nobody answers any more.
const PATIENCE: Duration = Duration::from_secs(60);
/// It ends by itself after that time, unless it is stopped, or waits where nothing can end it.
const LONGEST: Duration = Duration::from_secs(PATIENCE.as_secs() + 5);
/// How long it may take to end, and how often it is looked whether it has.
const ENDING: Duration = Duration::from_secs(1);
const GLANCE: Duration = Duration::from_millis(1);
/// Having so much memory after a window it ends, bytes.
const MOST: u64 = 40 << 20;

/// One that is started when it is needed, and ends with this.
#[derive(Debug, Default)]
pub(super) struct Reader(Option<Running>);

#[derive(Debug)]
struct Running {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Reader {
    /// Has a window read; `wait` waits for it.
    ///
    /// # Errors
    /// A sentence; the next one is read by another process.
    pub(super) fn cut(&mut self, request: &Request, wait: &mut Wait<'_>) -> Result<Made, String> {
        let mut running = match self.0.take() {
            Some(running) => running,
            None => Running::start().map_err(|error| error.to_string())?,
        };
        match running.ask(request, wait) {
            Ok(made) => {
                if !made.ends {
                    self.0 = Some(running);
                }
                Ok(made)
            }
            // Whatever went wrong, it is said by its status.
            Err(error) => Err(match running.end() {
                Ok(status) => format!("the window's reader ended with {status}"),
                Err(_) => error.to_string(),
            }),
        }
    }
}

impl Running {
    fn start() -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        // Keys on the terminal are not for it: it ends when its input does.
        command.arg(COMMAND).process_group(0);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
        Ok(Self {
            requests: child.stdin.take().ok_or_else(missing)?,
            answers: BufReader::new(child.stdout.take().ok_or_else(missing)?),
            child,
        })
    }

    fn ask(&mut self, request: &Request, wait: &mut Wait<'_>) -> io::Result<Made> {
        writeln!(self.requests, "{}", request.encode())?;
        match wait(self.answers.get_ref().as_fd(), LONGEST) {
            false => Err(io::ErrorKind::TimedOut.into()),
            true => Made::read(&mut self.answers),
        }
    }

    /// Has it end, if it has not; gives how it did.
    fn end(&mut self) -> io::Result<ExitStatus> {
        // It waits for a request, or has said what nobody understands.
        let _ = self.child.kill();
        // Where a file system does not answer it ends when that does.
        let deadline = Instant::now() + ENDING;
        loop {
            match self.child.try_wait()? {
                Some(status) => return Ok(status),
                None if deadline <= Instant::now() => return Err(io::ErrorKind::TimedOut.into()),
                None => thread::sleep(GLANCE),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The other side of [`Reader::cut`], until nobody asks any more.
///
/// # Errors
/// A sentence.
pub(super) fn run() -> Result<(), String> {
    let mut names = Names::default();
    let mut containers = Containers::default();
    for request in io::stdin().lock().lines() {
        let request = request.map_err(|error| error.to_string())?;
        let request = Request::decode(&request).ok_or("this is for rsunwind agent alone")?;
        let _ = nix::unistd::alarm::set(PATIENCE.as_secs() as u32);
        let made = make(&request, &mut names, &mut containers);
        // A recording that has ended meanwhile is read in another place: there is nothing to say.
        let has_ended = || request.paths.iter().any(|path| !path.exists());
        if made.is_err() && has_ended() {
            break;
        }
        let mut made = made?;
        made.ends = resident() > MOST;
        if made.ends {
            // Without them the next one takes longer, and that is all.
            let _ = names.write(&request.names);
        }
        match made.write(&mut io::stdout().lock()) {
            // The agent was killed: standard error is the program's, which goes on.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            written => written.map_err(|error| error.to_string())?,
        }
        let _ = nix::unistd::alarm::cancel();
        if made.ends {
            break;
        }
    }
    Ok(())
}

/// Memory of this process, bytes; 0 if that is not to be known.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.map_or(0, |pages: u64| pages.saturating_mul(4096))
}
