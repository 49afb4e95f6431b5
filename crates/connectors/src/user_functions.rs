//! Calls of the functions that make a user's source or sink: attribution of their errors, and
//! retries of transient ones.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, InstanceContext, Isolation, OutageReporter, Result};

/// An error of a function that is passed to a builder: of any type.
///
/// It is transient, and the call is repeated, if it is an [`Error`](ardea_core::Error) marked by
/// [`transient`](ardea_core::Error::transient), or an I/O error of the kinds `TimedOut`,
/// `Interrupted`, `WouldBlock`, `ResourceBusy`, `ConnectionRefused`, `HostUnreachable`,
/// `NetworkUnreachable` or `NetworkDown`. Any other error fails the job.
pub type UserError = Box<dyn StdError + Send + Sync>;

/// The result of a function that is passed to a builder.
pub type UserResult<T> = Result<T, UserError>;

/// Default time for which a transient error is retried.
pub(crate) const RETRY_LIMIT: Duration = Duration::from_secs(300);
/// First delay before a retry, and the longest.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Returns the isolation of functions that may block, or may not.
pub(crate) fn isolation_of(is_blocking: bool) -> Isolation {
    match is_blocking {
        true => Isolation::Thread,
        false => Isolation::Tasklet,
    }
}

/// The retries of a user's functions.
#[derive(Debug)]
pub(crate) struct UserRetry {
    reporter: OutageReporter,
    limit: Duration,
    outage: Option<Outage>,
}

/// Consecutive transient errors.
#[derive(Clone, Copy, Debug)]
struct Outage {
    since: Duration,
    delay: Duration,
    next_at: Duration,
}

impl UserRetry {
    /// Creates the retries of an instance. `part` names a part of it in log lines, or is empty.
    pub fn new(context: &InstanceContext, part: &str, limit: Duration) -> Self {
        UserRetry {
            reporter: OutageReporter::new(format!(
                "{}[{}]{part}",
                context.vertex, context.instance.index
            )),
            limit,
            outage: None,
        }
    }

    /// Returns the time of the next retry on the instance's clock; `None` without an outage.
    pub fn next_at(&self) -> Option<Duration> {
        self.outage.map(|outage| outage.next_at)
    }

    /// Returns true if a function may be called at the time `now`.
    pub fn is_due(&self, now: Duration) -> bool {
        self.next_at().is_none_or(|next_at| next_at <= now)
    }

    /// Returns the value of a function that was called at the time `now`; `None` if the function
    /// must be called again at [`next_at`](Self::next_at). `action` describes the call, such as
    /// "cannot write".
    ///
    /// # Errors
    /// Permanent errors, and transient ones after the limit.
    pub fn judge<T>(
        &mut self,
        now: Duration,
        action: impl FnOnce() -> String,
        outcome: UserResult<T>,
    ) -> Result<Option<T>> {
        let error = match outcome {
            Ok(value) => {
                self.outage = None;
                self.reporter.answers();
                return Ok(Some(value));
            }
            Err(error) => error,
        };
        if !is_transient(&*error) {
            return Err(attributed(action(), error));
        }
        let (first, longest) = RETRY_DELAYS;
        let outage = match self.outage {
            None => {
                self.reporter.away(format_args!("{}: {error}", action()));
                Outage {
                    since: now,
                    delay: first,
                    next_at: now.saturating_add(first),
                }
            }
            Some(outage) if now.saturating_sub(outage.since) >= self.limit => {
                let action = format!("{} for {:?}", action(), self.limit);
                return Err(attributed(action, error));
            }
            Some(outage) => {
                let delay = (outage.delay * 2).min(longest);
                Outage {
                    delay,
                    next_at: now.saturating_add(delay),
                    ..outage
                }
            }
        };
        self.outage = Some(outage);
        Ok(None)
    }
}

/// Returns true if an error is marked as transient, or is an I/O error after which the same call
/// may succeed.
fn is_transient(error: &(dyn StdError + Send + Sync + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<Error>() {
        return error.is_transient();
    }
    error.downcast_ref::<io::Error>().is_some_and(|error| {
        matches!(
            error.kind(),
            io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted
                | io::ErrorKind::WouldBlock
                | io::ErrorKind::ResourceBusy
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::NetworkDown
        )
    })
}

/// Returns the job's error for an error of a user's function.
pub(crate) fn attributed(action: String, error: UserError) -> Error {
    let mut hint = "see the cause, an error of the job's own code".to_string();
    let mut is_permanent = false;
    let error = match error.downcast::<Error>() {
        Ok(own) => {
            is_permanent = own.is_permanent();
            hint = own.hint_text().map_or(hint, str::to_string);
            Box::new(own.without_hint())
        }
        Err(error) => error,
    };
    let error = Error::new(ErrorCode::UserError, action)
        .because(error)
        .hint(hint);
    match is_permanent {
        true => error.permanent(),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry() -> UserRetry {
        UserRetry::new(&InstanceContext::detached("s"), "", Duration::from_secs(10))
    }

    fn failed<T>(error: impl Into<UserError>) -> UserResult<T> {
        Err(error.into())
    }

    #[test]
    fn a_transient_error_is_retried_with_growing_delays_up_to_the_limit() {
        let mut retry = retry();
        let away = || Error::new(ErrorCode::Network, "away").transient();
        let (mut now, mut delays) = (Duration::ZERO, Vec::new());
        let error = loop {
            match retry.judge(now, || "cannot write".into(), failed::<()>(away())) {
                Ok(outcome) => assert_eq!(outcome, None),
                Err(error) => break error,
            }
            assert!(!retry.is_due(now));
            let next_at = retry.next_at().unwrap();
            delays.push((next_at - now).as_millis());
            now = next_at;
        };
        assert_eq!(delays[..6], [100, 200, 400, 800, 1_600, 2_000]);
        assert!(now >= Duration::from_secs(10) && now < Duration::from_secs(13));
        assert_eq!(error.code(), ErrorCode::UserError);
        assert!(
            error.to_string().contains("cannot write for 10s"),
            "{error}"
        );
    }

    #[test]
    fn a_success_ends_the_outage() {
        let mut retry = retry();
        let busy = io::Error::from(io::ErrorKind::TimedOut);
        let action = || "cannot write".to_string();
        assert_eq!(
            retry
                .judge(Duration::ZERO, action, failed::<u8>(busy))
                .unwrap(),
            None
        );
        assert_eq!(retry.judge(Duration::ZERO, action, Ok(7)).unwrap(), Some(7));
        assert_eq!(retry.next_at(), None);
    }

    #[test]
    fn other_errors_end_the_job_with_the_hint_of_the_cause() {
        let full = Error::new(ErrorCode::DiskFull, "no space")
            .hint("free some")
            .permanent();
        let action = || "cannot write 3 records".to_string();
        let error = retry()
            .judge(Duration::ZERO, action, failed::<()>(full))
            .unwrap_err();
        assert!(error.is_permanent());
        assert_eq!(
            error.to_string(),
            "ARD-202: cannot write 3 records: ARD-635: no space; free some"
        );
        let other = retry().judge(Duration::ZERO, action, failed::<()>("no such table"));
        let other = other.unwrap_err();
        assert!(other.to_string().contains("no such table") && !other.is_permanent());
        assert!(other.hint_text().is_some());
    }
}
