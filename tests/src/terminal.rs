//! A terminal of 80×24 that a program can be given, and what is on its screen.

use crate::command::wait_for;
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::termios::{LocalFlags, tcgetattr};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread;

/// The side that people see.
#[expect(missing_debug_implementations)] // a screen has none
pub struct Terminal {
    keys: File,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    /// A new one, and the side that programs have.
    ///
    /// # Panics
    /// If the kernel has none.
    #[must_use]
    pub fn new() -> (Self, OwnedFd) {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let OpenptyResult { master, slave } = openpty(&size, None).expect("a terminal");
        let screen = Arc::new(Mutex::new(vt100::Parser::new(24, 80, 0)));
        let mut from = File::from(master.try_clone().expect("another descriptor"));
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                let mut screen = shown.lock().expect("nothing panics with it");
                screen.process(&bytes[..count]);
            }
        });
        let keys = File::from(master);
        (Self { keys, screen }, slave)
    }

    fn with<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.screen.lock().expect("nothing panics with it").screen())
    }

    /// What is on the screen.
    #[must_use]
    pub fn screen(&self) -> String {
        self.with(vt100::Screen::contents)
    }

    /// Waits for all of these on the screen.
    pub fn shows(&self, parts: &[&str]) {
        wait_for(&format!("{parts:?}"), || {
            let screen = self.screen();
            parts.iter().all(|part| screen.contains(part)).then_some(())
        });
    }

    /// Presses keys.
    ///
    /// # Panics
    /// If nobody has the other side.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it is open");
    }

    /// Whether the terminal is as a shell has it.
    ///
    /// # Panics
    /// If it is none any more.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        let lines = LocalFlags::ICANON | LocalFlags::ECHO;
        let is_drawn_on =
            |screen: &vt100::Screen| screen.alternate_screen() || screen.hide_cursor();
        let settings = tcgetattr(&self.keys).expect("a terminal");
        settings.local_flags.contains(lines) && !self.with(is_drawn_on)
    }
}
