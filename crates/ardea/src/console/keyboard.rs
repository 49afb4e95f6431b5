//! The keyboard while live tables show: what is typed is not echoed into them, and `q` ends what they show, as Ctrl-C does.
//!
//! The terminal is as it was as soon as the tables are gone, however they go: by their end, by a panic that unwinds, or by a signal. For the
//! time that the process is stopped (Ctrl-Z) the shell has it as it was as well.

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

/// How often is looked whether the tables are gone.
const LOOK: Duration = Duration::from_millis(50);

/// How the terminal was, while it is another way.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// While this lives, what is typed is neither shown nor kept for the shell.
pub struct Keyboard {
    is_over: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Keyboard {
    /// Takes the keyboard, so that `q` is a first interrupt; nothing if standard input is no terminal, or another's at the moment.
    pub fn taken(interrupts: &Interrupts) -> Option<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() || !is_ours(&stdin) {
            return None;
        }
        *before() = Some(tcgetattr(&stdin).ok()?);
        give_back_at_signals();
        make_quiet(&stdin);
        let is_over = Arc::new(AtomicBool::new(false));
        let (told, interrupts) = (Arc::clone(&is_over), interrupts.clone());
        let reader = thread::Builder::new()
            .name("ardea-keyboard".into())
            .spawn(move || read(&stdin, &told, &interrupts));
        // Without a reader nothing is echoed all the same.
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
            // A reader that panicked has said so itself.
            let _ = reader.join();
        }
        let mut before = before();
        give_back_as(&before);
        *before = None;
    }
}

/// Makes the terminal what it was, if it is another way.
pub fn give_back() {
    give_back_as(&before());
}

fn give_back_as(before: &Option<Termios>) {
    let stdin = io::stdin();
    if let Some(before) = before
        && is_ours(&stdin)
    {
        // What was typed was for the tables. A terminal that can't be asked has gone.
        let _ = tcflush(&stdin, QueueSelector::IFlush);
        let _ = tcsetattr(&stdin, OptionalActions::Now, before);
    }
}

fn before() -> MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this process may read and change it: in the background that would stop the process. Of a terminal that is not the one of its
/// session it is not asked.
fn is_ours(stdin: &Stdin) -> bool {
    tcgetpgrp(stdin).map_or(true, |group| group == rustix::process::getpgrp())
}

/// No echo, and each key at once; as long as the terminal is not given back for good. A shell that this process came back from has made it what
/// it was, so this is done again and again.
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

/// Reads keys until it is over, or the terminal has gone.
fn read(stdin: &Stdin, is_over: &AtomicBool, interrupts: &Interrupts) {
    let mut keys = [0; 64];
    let patience = Timespec::try_from(LOOK).ok();
    while !is_over.load(Ordering::SeqCst) {
        if !is_ours(stdin) {
            thread::sleep(LOOK);
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

/// From now on, signals that end or stop the process at once give the terminal back first. Ctrl-C and SIGTERM end what shows the tables.
fn give_back_at_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Where there is no thread for that, the shell has to help itself.
        let Ok(mut signals) = Signals::new([SIGHUP, SIGQUIT, SIGTSTP]) else {
            return;
        };
        let _ = thread::Builder::new()
            .name("ardea-give-back".into())
            .spawn(move || {
                for signal in signals.forever() {
                    // Held, so that it is not taken again before the process has stopped.
                    let before = before();
                    give_back_as(&before);
                    let _ = emulate_default_handler(signal);
                }
            });
    });
}
