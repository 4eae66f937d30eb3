//! Arming a thread and disarming it: which trigger it gets, what the trigger must know of it, and what is recorded of that.

use super::{Arming, NAME_SIZE, ThreadState, registry};
use crate::config::{Config, Destination};
use crate::cpu_meter::CpuMeter;
use crate::process::PROCESS;
use crate::segment::SEGMENT;
use crate::sys::{self, HeldBack};
use crate::trigger::perf::{self, Recipient};
use crate::trigger::timer::CpuTimer;
use crate::trigger::{self, Armed, SIGNAL};
use core::sync::atomic::Ordering::Relaxed;
use engine::wire::offer::Offer;

/// So many threads of an ordinary user have rings of ample size.
const FEW_THREADS: usize = 16;

impl ThreadState {
    /// Arms the thread for the first time and records that, or records why not. CPU time that it has used already is counted as unarmed.
    pub fn arm(&mut self) {
        self.arm_from(sys::thread_cpu_ns(self.tid.load(Relaxed)).unwrap_or(0));
    }

    /// Arms the thread after a pause too short to count, or with a better trigger.
    pub fn arm_again(&mut self) {
        self.disarm();
        self.arm_from(0);
    }

    /// Arms the thread with a CPU timer, whatever else is permitted, and records nothing yet.
    pub fn arm_with_timer(&mut self) {
        let tag = core::ptr::from_mut(self) as usize;
        let _held = HeldBack::new(SIGNAL);
        if let Ok(timer) = CpuTimer::start(PROCESS.period_ns(), tag) {
            self.armed = Armed::Timer(timer);
        }
    }

    fn arm_from(&mut self, unarmed_cpu_ns: u64) {
        let config = PROCESS.config();
        let period_ns = PROCESS.period_ns();
        let thread = self.to_arm(config);
        // The handler must not meet a trigger that is half in place.
        let _held = HeldBack::new(SIGNAL);
        self.meter = CpuMeter::starting_at(self.cpu_ns().unwrap_or(0));
        let refused = match trigger::arm(config, period_ns, &thread) {
            Ok((armed, refused)) => {
                self.lent |= matches!(&armed, Armed::Perf(event) if event.is_lent());
                self.armed = armed;
                refused
            }
            Err(error) => {
                if let Some(header) = SEGMENT.header() {
                    header.unarmed_threads.fetch_add(1, Relaxed);
                }
                error
            }
        };
        self.totals
            .unarmed_cpu_ns
            .fetch_add(unarmed_cpu_ns, Relaxed);
        self.arming = Arming {
            period_ns,
            refused,
            unarmed_cpu_ns,
        };
        self.name = [0; NAME_SIZE];
        self.record_name();
    }

    fn to_arm(&self, config: &Config) -> trigger::Thread {
        let offer = Offer {
            pid: sys::getpid(),
            tid: self.tid.load(Relaxed),
            process_key: PROCESS.key(),
            thread_key: self.key.load(Relaxed),
            ..Offer::default()
        };
        let recipient = match config.destination {
            Destination::Session(directory) => Some(Recipient {
                directory,
                offer,
                sparing: registry::threads() > FEW_THREADS && !sys::is_root(),
            }),
            Destination::File(_) => None,
        };
        trigger::Thread {
            tag: core::ptr::from_ref(self) as usize,
            nonce: self.nonce,
            recipient,
        }
    }

    /// Stops the trigger. Where its events are lent to the collector, signals may come until that lets go of them; they are known as late.
    pub fn disarm(&mut self) {
        // The handler must not read a ring that is being unmapped.
        let _held = HeldBack::new(SIGNAL);
        self.drain_perf();
        if let Armed::Perf(event) = &self.armed {
            self.past_descriptors = event.descriptors();
        }
        self.armed = Armed::None;
    }

    /// Disarms before an exec: nothing of ours may raise a signal any more, which would kill the next program.
    pub fn disarm_for_good(&mut self) {
        if self.lent {
            perf::rest_all();
        }
        self.disarm();
    }
}
