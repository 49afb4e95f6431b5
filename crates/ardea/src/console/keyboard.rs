//! The keyboard while live tables show: input is not echoed, and `q` acts like Ctrl-C.
//!
//! The terminal is restored as soon as the tables are gone: at their end, by a panic that unwinds,
//! or by a signal. It is also restored while the process is stopped (Ctrl-Z).

use std::io::{self, IsTerminal, Stdin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcgetpgrp, tcsetattr,
};
use signal_hook::consts::{SIGHUP, SIGQUIT, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::interrupts::Interrupts;

/// The interval at which the end of the tables is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The terminal's original settings; `None` while the terminal is unchanged.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// A guard: while it lives, input is neither echoed nor left for the shell.
pub struct Keyboard {
    is_over: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Keyboard {
    /// Takes the keyboard, so that `q` is a first interrupt; returns `None` if standard input is no
    /// terminal or this process is in the background.
    pub fn taken(interrupts: &Interrupts) -> Option<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() || !is_ours(&stdin) {
            return None;
        }
        *before() = Some(tcgetattr(&stdin).ok()?);
        restore_at_signals();
        make_quiet(&stdin);
        let is_over = Arc::new(AtomicBool::new(false));
        let (told, interrupts) = (Arc::clone(&is_over), interrupts.clone());
        let reader = thread::Builder::new()
            .name("ardea-keyboard".into())
            .spawn(move || read(&stdin, &told, &interrupts));
        // Without a reader, echo is off all the same.
        Some(Keyboard {
            is_over,
            reader: reader.ok(),
        })
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(reader) = self.reader.take() {
            // A panic has already been printed.
            let _ = reader.join();
        }
        let mut before = before();
        restore_settings(&before);
        *before = None;
    }
}

/// Restores the terminal, if it is changed.
pub fn restore_terminal() {
    restore_settings(&before());
}

fn restore_settings(before: &Option<Termios>) {
    let stdin = io::stdin();
    if let Some(before) = before
        && is_ours(&stdin)
    {
        // Discards input typed for the tables. Errors mean that the terminal is gone.
        let _ = tcflush(&stdin, QueueSelector::IFlush);
        let _ = tcsetattr(&stdin, OptionalActions::Now, before);
    }
}

fn before() -> MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if this process may read and change the terminal without being stopped: it is in
/// the foreground, or the terminal belongs to another session.
fn is_ours(stdin: &Stdin) -> bool {
    tcgetpgrp(stdin).map_or(true, |group| group == rustix::process::getpgrp())
}

/// Turns off echo and line mode, unless the terminal has been restored for good. Called repeatedly,
/// since a shell restores the settings while the process is stopped.
fn make_quiet(stdin: &Stdin) {
    let loud = LocalModes::ECHO | LocalModes::ICANON;
    let before = before();
    if before.is_none() || !is_ours(stdin) {
        return;
    }
    if let Ok(mut now) = tcgetattr(stdin)
        && now.local_modes.intersects(loud)
    {
        now.local_modes.remove(loud);
        now.special_codes[SpecialCodeIndex::VMIN] = 1;
        now.special_codes[SpecialCodeIndex::VTIME] = 0;
        let _ = tcsetattr(stdin, OptionalActions::Now, &now);
    }
}

/// Reads keys until the tables are gone, or the terminal is.
fn read(stdin: &Stdin, is_over: &AtomicBool, interrupts: &Interrupts) {
    let mut keys = [0; 64];
    let patience = Timespec::try_from(POLL_INTERVAL).ok();
    while !is_over.load(Ordering::SeqCst) {
        if !is_ours(stdin) {
            thread::sleep(POLL_INTERVAL);
            continue;
        }
        make_quiet(stdin);
        let mut polled = [PollFd::new(stdin, PollFlags::IN)];
        let is_there = matches!(poll(&mut polled, patience.as_ref()), Ok(1..));
        if !is_there || !is_ours(stdin) {
            continue;
        }
        match rustix::io::read(stdin, &mut keys) {
            Ok(0) => return,
            Ok(count) if keys[..count].contains(&b'q') => interrupts.quit(),
            Ok(_) | Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}

/// Installs handlers that restore the terminal before a signal ends or stops the process. Ctrl-C
/// and SIGTERM end the tables instead.
fn restore_at_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without a thread for that, the shell has to restore the terminal.
        let Ok(mut signals) = Signals::new([SIGHUP, SIGQUIT, SIGTSTP]) else {
            return;
        };
        let _ = thread::Builder::new()
            .name("ardea-give-back".into())
            .spawn(move || {
                for signal in signals.forever() {
                    // Holds the lock until the process has stopped, so that the terminal is not
                    // changed again before.
                    let before = before();
                    restore_settings(&before);
                    let _ = emulate_default_handler(signal);
                }
            });
    });
}
