//! The start of profiling in a program that is linked with the library and has no preload library,
//! as static ones: in its constructor, before the program's own code, where the environment names a
//! session whose collector opens the events.

use super::complaint::{self, Line};
use super::identity::Identity;
use super::outside::{self, Failure, Stage};
use super::{charge, thread_end};
use crate::config::Config;
use crate::modules::Auxiliary;
use crate::segment::SEGMENT;
use crate::sys::{self, Errno};
use engine::wire::process::Origin;

/// Begins, if the settings say that the collector opens events on such programs; a program that has
/// more rights than who started it does not listen to them. What goes wrong is said in one line.
pub fn start(settings: &[u8], auxiliary: Auxiliary) {
    let descriptor = Config::outside(settings).filter(|_| !auxiliary.is_secure);
    let Some(descriptor) = descriptor else {
        return;
    };
    match begin(settings, auxiliary, descriptor) {
        // It has outlived the recording that it was started in.
        Ok(())
        | Err(Failure {
            stage: Stage::Session,
            errno: Errno(libc::ENOENT),
        }) => {}
        Err(failure) => complain(failure),
    }
}

fn begin(settings: &[u8], auxiliary: Auxiliary, descriptor: i32) -> Result<(), Failure> {
    let config = Config::parse(settings).map_err(|_| Errno(libc::EINVAL));
    let config = config.map_err(Stage::Settings.failed())?;
    charge::begin();
    thread_end::register();
    let identity = Identity::read(Origin::Exec);
    outside::begin(&config, auxiliary, descriptor, &identity).map(drop)
}

fn complain(Failure { stage, errno }: Failure) {
    let line = Line::new().then(complaint::NOT_PROFILED);
    let line = match stage {
        Stage::Settings => line.then(b"bad RSUNWIND"),
        Stage::Session | Stage::File => complaint::cannot_write(line, &SEGMENT.path(), errno),
        Stage::Memory => line
            .then(b"no memory: ")
            .then(complaint::reason(errno.0).as_bytes()),
        Stage::Signal => line
            .then(b"cannot handle SIGURG: ")
            .then(complaint::reason(errno.0).as_bytes()),
    };
    sys::write_stderr(line.then(b"\n").bytes());
}
