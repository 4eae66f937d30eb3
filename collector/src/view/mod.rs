//! `rsunwind view`: a recording as a page that a browser of this machine can ask for.
//!
//! Nobody else gets it: it is served on the loopback address only, under an address that nobody can
//! guess. No browser is started: its command line, with that address, would be there for all users
//! of the machine to read.
//!
//! Not here: the page ([`crate::output`]), and what is answered (`server`).

mod server;

use crate::output::{self, Options};
use crate::progress;
use crate::progress_bar::Working;
use crate::report::{self, Selection};
use crate::visible::{Shown, say};
use clap::Args as ClapArgs;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

/// Arguments of `rsunwind view`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  rsunwind view                        the newest recording here
  rsunwind view prog.rsu --pid 1234    one process of it
  rsunwind view profile.html           a page that was exported before
Of another machine: ssh -L 8000:127.0.0.1:8000 there rsunwind view -P 8000 prog.rsu")]
pub struct Args {
    /// Recordings (.rsu), segments (.seg), or session directories, which are read as one; or a page
    /// (.html) that rsunwind export has written [default: the newest recording here]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// The port to serve it on [default: one that is free]
    #[arg(short = 'P', long, default_value_t = 0, hide_default_value = true)]
    pub port: u16,

    /// Which samples, and where names are looked for
    #[command(flatten)]
    pub selection: Selection,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording cannot be read, or nothing in it is what was asked for.
    #[error(transparent)]
    Read(#[from] report::Error),
    /// There is no such page.
    #[error("{}: {source}", path.shown())]
    Page {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// The port cannot be had.
    #[error("cannot serve on 127.0.0.1:{port}: {source} (choose another with -P, or none)")]
    Port {
        /// Which.
        port: u16,
        /// Why.
        source: io::Error,
    },
    /// No random numbers, no memory, or no standard output.
    #[error("the page cannot be served: {0}")]
    System(#[from] io::Error),
}

impl Error {
    /// The exit status that says the same to a script.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Read(error) => error.exit_status(),
            _ => 1,
        }
    }
}

/// Serves the page until a signal ends the process: there is nothing to be put away.
///
/// # Errors
/// Any [`Error`].
pub fn run(args: &Args) -> Result<(), Error> {
    // Before the recording is read, which may take a while.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port));
    let listener = listener.map_err(|source| Error::Port {
        port: args.port,
        source,
    })?;
    let page = match &args.files[..] {
        [path] if is_page(path) => fs::read(path).map_err(|source| Error::Page {
            path: path.clone(),
            source,
        })?,
        files => made(args, files)?,
    };
    let token = token()?;
    let mut out = io::stdout().lock();
    writeln!(out, "http://{}/{token}/", listener.local_addr()?)?;
    out.flush()?;
    drop(out);
    say("open this address in a browser of this machine; Ctrl-C ends it");
    Ok(server::serve(&listener, &token, page)?)
}

fn is_page(path: &Path) -> bool {
    let end = path.extension();
    end.is_some_and(|end| end == "html" || end == "htm")
}

fn made(args: &Args, files: &[PathBuf]) -> Result<Vec<u8>, Error> {
    let working = Working::begin();
    let profile = args.selection.open(files, true)?;
    let options = Options {
        names: args.selection.names(),
        ..Options::default()
    };
    let mut page = Vec::new();
    progress::begin("writing", 0);
    output::page().write(&profile, &options, &mut page)?;
    drop(working);
    report::complain(&profile);
    Ok(page)
}

/// 128 bits that nobody can guess, in hexadecimal.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
