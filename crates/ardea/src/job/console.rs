//! The messages of a program that submits a job.

use std::io::{self, IsTerminal, Write};

use ardea_config::readable_bytes;

use super::submit::{Step, Submitted};

/// The progress line of a submission: redrawn in place on a terminal, absent elsewhere.
pub struct Console {
    is_shown: bool,
    /// True if a line is on the terminal now.
    stands: bool,
}

impl Console {
    /// Creates the console of this process, which prints nothing if `is_quiet`.
    pub fn of_process(is_quiet: bool) -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Console {
            is_shown: !is_quiet && !is_dumb && io::stderr().is_terminal(),
            stands: false,
        }
    }

    /// Shows a step.
    pub fn show_step(&mut self, step: &Step) {
        if self.is_shown {
            self.stands = true;
            // Ignored if standard error is closed.
            let _ = write!(io::stderr(), "\r{}\x1b[K", in_words(step));
        }
    }

    /// Removes the line.
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
        Step::Storing { bytes } => format!("storing the program ({})", readable_bytes(*bytes)),
        Step::Submitting => "submitting".into(),
        Step::Upgrading { stage } => format!("upgrading: {stage}"),
        Step::Starting {
            workers,
            containers,
        } => format!("starting: {workers} of {containers} containers"),
    }
}

/// Returns the text printed after a submission.
pub fn submission_text(submitted: &Submitted) -> String {
    let plural = |count: usize, of: &str| {
        let s = if count == 1 { "" } else { "s" };
        format!("{count} {of}{s}")
    };
    let mut text = format!(
        "{} is {} on cluster {}: {} in {}\n",
        submitted.job,
        submitted.phase.as_str(),
        submitted.cluster,
        plural(submitted.instances, "instance"),
        plural(submitted.containers, "container"),
    );
    for notice in &submitted.notices {
        text += &format!("{notice}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_rest::Phase;

    #[test]
    fn what_came_of_it_is_told_in_a_line_and_then_what_else_there_is_to_know() {
        let submitted = Submitted {
            job: "words".into(),
            cluster: "local".into(),
            submission: "2a".into(),
            package: String::new(),
            phase: Phase::Running,
            containers: 1,
            instances: 2,
            notices: vec!["and this".into()],
        };
        let told = submission_text(&submitted);
        let expected = "words is running on cluster local: 2 instances in 1 container\nand this\n";
        assert_eq!(told, expected);
    }
}
