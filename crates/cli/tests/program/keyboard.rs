//! Live tables on a terminal, and keyboard input meanwhile.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::ardea::{ardea, eventually, exit_code, signal};
use crate::served::Served;

/// A terminal of 24 lines, and the output on it.
struct Terminal {
    keys: File,
    side: OwnedFd,
    before: Termios,
    written: Arc<Mutex<String>>,
}

impl Terminal {
    fn new() -> Self {
        Terminal::wide(140)
    }

    fn wide(columns: u16) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let path = ptsname(&keys, Vec::new()).unwrap();
        let side = open(path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&side, size).unwrap();
        let before = tcgetattr(&side).unwrap();
        assert!(before.local_modes.contains(LocalModes::ECHO));
        let keys = File::from(keys);
        let written = Arc::<Mutex<String>>::default();
        let (mut read, sees) = (keys.try_clone().unwrap(), Arc::clone(&written));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = read.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                sees.lock().unwrap().push_str(&text);
            }
        });
        Terminal {
            keys,
            side,
            before,
            written,
        }
    }

    /// Starts the program on the terminal, and waits until it shows this text.
    fn shows(&self, mut command: Command, what: &str) -> Child {
        let side = || self.side.try_clone().unwrap();
        let child = command
            .env("TERM", "xterm")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        eventually("the tables are there, and the terminal is quiet", || {
            self.written().contains(what) && !self.is_as_before()
        });
        child
    }

    fn types(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    fn written(&self) -> String {
        self.written.lock().unwrap().clone()
    }

    fn is_as_before(&self) -> bool {
        tcgetattr(&self.side).unwrap().local_modes == self.before.local_modes
    }
}

fn top(served: &Served) -> Command {
    let mut command = ardea(&["top", "word-count"]);
    command.env("ARDEA_CLUSTER_API", &served.base);
    command.current_dir(served.folder.path());
    command
}

#[test]
fn top_does_not_echo_what_is_typed_and_q_ends_it() {
    let served = Served::with_word_count();
    let mut terminal = Terminal::new();
    let mut child = terminal.shows(top(&served), "1.25 M");
    terminal.types("xyz\n\n");
    terminal.types("q");
    assert_eq!(exit_code(&mut child), Some(0), "{}", terminal.written());
    assert!(terminal.is_as_before());
    assert!(!terminal.written().contains("xyz"));
}

#[test]
fn top_of_a_job_that_is_killed_ends_well_and_says_so() {
    let served = Served::with_word_count();
    let terminal = Terminal::new();
    let mut child = terminal.shows(top(&served), "1.25 M");
    served.succeed("kill word-count --yes");
    assert_eq!(exit_code(&mut child), Some(0), "{}", terminal.written());
    assert!(terminal.is_as_before());
    eventually("it says so", || {
        terminal.written().contains(": it was killed")
    });
    let written = terminal.written();
    assert!(!written.contains("looks") && !written.contains("error"));
}

#[test]
fn a_narrow_terminal_has_a_table_more_and_nothing_snapshot_off() {
    let served = Served::with_word_count();
    for (columns, is_narrow) in [(80, true), (140, false)] {
        let mut terminal = Terminal::wide(columns);
        let mut child = terminal.shows(top(&served), "problems");
        terminal.types("q");
        assert_eq!(exit_code(&mut child), Some(0), "{}", terminal.written());
        eventually("the last frame", || terminal.written().contains("64MiB"));
        let written = terminal.written();
        let has = |what: &str| written.contains(what);
        assert_eq!(has("latency and problems"), is_narrow, "{written}");
        assert!(has("restarts  problems") && !has("…"), "{written}");
    }
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let served = Served::with_word_count();
    for (sent, code) in [
        (Signal::TERM, Some(0)),
        (Signal::QUIT, None),
        (Signal::HUP, None),
    ] {
        let terminal = Terminal::new();
        let mut child = terminal.shows(top(&served), "1.25 M");
        signal(&child, sent);
        assert_eq!(exit_code(&mut child), code, "{sent:?}");
        assert!(terminal.is_as_before(), "{sent:?}");
    }
}

#[test]
fn while_it_is_stopped_the_shell_has_the_terminal_as_it_was() {
    let served = Served::with_word_count();
    let mut terminal = Terminal::new();
    let mut child = terminal.shows(top(&served), "1.25 M");
    signal(&child, Signal::TSTP);
    let stat = format!("/proc/{}/stat", child.id());
    eventually("it is stopped", || {
        fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))
    });
    assert!(terminal.is_as_before());
    signal(&child, Signal::CONT);
    eventually("it goes on", || !terminal.is_as_before());
    terminal.types("q");
    assert_eq!(exit_code(&mut child), Some(0));
    assert!(terminal.is_as_before());
}

#[test]
fn in_live_tables_of_a_job_q_is_a_first_interrupt() {
    let mut terminal = Terminal::new();
    let mut child = terminal.shows(ardea(&["demo", "--speed", "3600"]), "flights");
    terminal.types("qq");
    assert_eq!(exit_code(&mut child), Some(4), "{}", terminal.written());
    assert!(terminal.is_as_before());
}
