//! Copies of this program as processes of a benchmark.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};

use crate::usage::process_cpu_time;

/// Copies of this program, killed when this is dropped.
pub(crate) struct Copies {
    /// The part of the copies in the benchmark, with its article.
    role: &'static str,
    children: Vec<Child>,
}

impl Copies {
    /// Starts `ardea bench BENCH --copy ARGUMENT` for each argument.
    ///
    /// # Errors
    /// [`ErrorCode::StartFailed`] if a process cannot be started; the failure of an argument.
    pub(crate) fn start(
        bench: &str,
        role: &'static str,
        arguments: impl IntoIterator<Item = Result<String>>,
    ) -> Result<Self> {
        let mut copies = Copies {
            role,
            children: Vec::new(),
        };
        for argument in arguments {
            let child = Command::new("/proc/self/exe")
                .args(["bench", bench, "--copy", &argument?])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn();
            copies.children.push(child.map_err(|error| {
                Error::new(ErrorCode::StartFailed, format!("cannot start {role}")).because(error)
            })?);
        }
        Ok(copies)
    }

    /// Checks that all copies still run.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if one has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        for child in &mut self.children {
            if let Ok(Some(status)) = child.try_wait() {
                let what = format!("{} ended by itself: {status}", self.role);
                return Err(Error::new(ErrorCode::LimitReached, what)
                    .hint("its output is above, on standard error"));
            }
        }
        Ok(())
    }

    /// Returns the CPU time used by the copies.
    pub(crate) fn cpu_time(&self) -> Duration {
        let children = self.children.iter();
        let times = children.map(|child| process_cpu_time(child.id()));
        times.flatten().sum()
    }

    /// Kills the copy with this process id, and removes it from the list.
    pub(crate) fn kill(&mut self, pid: u32) {
        let killed = self.children.iter().position(|child| child.id() == pid);
        if let Some(at) = killed {
            end(&mut self.children.remove(at));
        }
    }
}

/// Sends SIGKILL. A process that is already gone is no error.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.children.iter_mut().for_each(end);
    }
}
