//! What a program says while it submits.

use std::io::{self, IsTerminal, Write};

use ardea_core::settings::format_bytes;

use super::submit::{Step, Submitted};

/// Tells how far submitting is: on a terminal in one line that is redrawn, else in none.
pub struct Console {
    is_shown: bool,
    /// Whether a line stands there.
    stands: bool,
}

impl Console {
    /// Of this process; a quiet one says nothing.
    pub fn of_process(is_quiet: bool) -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Console {
            is_shown: !is_quiet && !is_dumb && io::stderr().is_terminal(),
            stands: false,
        }
    }

    /// Tells of a step.
    pub fn tell(&mut self, step: &Step) {
        if self.is_shown {
            self.stands = true;
            // If standard error is closed there is nobody to tell.
            let _ = write!(io::stderr(), "\r{}\x1b[K", in_words(step));
        }
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.stands) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.clear();
    }
}

fn in_words(step: &Step) -> String {
    match step {
        Step::Storing { bytes } => format!("storing the program ({})", rounded(*bytes)),
        Step::Submitting => "submitting".into(),
        Step::Starting {
            workers,
            containers,
        } => format!("starting: {workers} of {containers} containers"),
    }
}

/// So many bytes, in whole units.
fn rounded(bytes: u64) -> String {
    let unit = [1 << 30, 1 << 20, 1 << 10];
    let unit = unit.into_iter().find(|unit| bytes >= 10 * unit);
    let unit = unit.unwrap_or(1);
    format_bytes(bytes / unit * unit)
}

/// What there is to say when it is done.
pub fn told(submitted: &Submitted) -> String {
    let plural = |count: usize, of: &str| {
        let s = if count == 1 { "" } else { "s" };
        format!("{count} {of}{s}")
    };
    format!(
        "{} is {} on cluster {}: {} in {}\n",
        submitted.job,
        submitted.phase.as_str(),
        submitted.cluster,
        plural(submitted.instances, "instance"),
        plural(submitted.containers, "container"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_few_digits() {
        assert_eq!(rounded(12_345_678), "11MiB");
        assert_eq!(rounded(9_999), "9999B");
        assert_eq!(rounded(0), "0B");
    }
}
