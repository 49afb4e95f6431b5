//! Host selection and retries of a client.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use tokio::time::{Instant, sleep, timeout_at};

use super::Client;
use super::endpoint::Endpoint;
use super::request::{ApiRequest, FailureKind, SuccessResponse, TRY_AGAIN, TryFailed};

/// Retry timeout while the job changes its leader. It is longer than a leader's lease.
pub(super) const LEADER_CHANGE_TIMEOUT: Duration = Duration::from_secs(20);

/// Retry delay, if the host's response contains none.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Time for which a host that does not respond is skipped.
const SKIP_DURATION: Duration = Duration::from_secs(5);

/// A future of the current interface URLs of a cluster's hosts.
pub(super) type HostEndpoints = Pin<Box<dyn Future<Output = Result<Vec<String>>> + Send>>;

/// The hosts that a client can try. Clones share the host that responded last.
#[derive(Clone)]
pub(super) struct Hosts {
    /// The host that is tried first.
    at: Arc<Mutex<Endpoint>>,
    find: Option<Arc<dyn Fn() -> HostEndpoints + Send + Sync>>,
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts").field("at", &self.at()).finish()
    }
}

impl Hosts {
    /// Creates the list of a single host.
    pub(super) fn only(place: Endpoint) -> Self {
        Hosts {
            at: Arc::new(Mutex::new(place)),
            find: None,
        }
    }

    /// Returns the list with the current host and a function that finds the others.
    pub(super) fn with_discovery(
        &self,
        find: Arc<dyn Fn() -> HostEndpoints + Send + Sync>,
    ) -> Self {
        Hosts {
            at: Arc::new(Mutex::new(self.at())),
            find: Some(find),
        }
    }

    /// Returns the host that is tried first.
    pub(super) fn at(&self) -> Endpoint {
        self.at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set_current(&self, place: Endpoint) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }
}

/// The hosts that do not respond, each with the time until which it is skipped.
#[derive(Debug, Default)]
pub(super) struct BackoffList(Vec<(Endpoint, Instant)>);

impl BackoffList {
    /// Returns true if this host is skipped at present.
    pub(super) fn has(&self, place: &Endpoint) -> bool {
        let now = Instant::now();
        let mut left = self.0.iter();
        left.any(|(left, until)| left == place && *until > now)
    }

    fn add(&mut self, place: Endpoint) {
        self.0.retain(|(left, _)| *left != place);
        self.0.push((place, Instant::now() + SKIP_DURATION));
    }
}

/// The state of a request across retries.
#[derive(Debug)]
struct RetryState {
    began: Instant,
    /// Start of the current period in which no host responds.
    missing_since: Instant,
    left: BackoffList,
    /// Hosts that could not be reached since a host last responded.
    failed: Vec<Endpoint>,
    /// True if a host may have executed the request without responding.
    outcome_unknown: bool,
}

/// The final failure of a request.
#[derive(Debug)]
pub(super) struct RequestFailed {
    pub(super) error: Error,
    /// True if the request is a command that may have been executed in spite of the failure.
    pub(super) outcome_unknown: bool,
}

impl From<RequestFailed> for Error {
    fn from(gave_up: RequestFailed) -> Self {
        let error = gave_up.error;
        if !gave_up.outcome_unknown {
            return error;
        }
        let next = error.hint_text().filter(|next| is_combinable(&error, next));
        let next = match next {
            Some(next) => format!("{OUTCOME_UNKNOWN}; {next}"),
            None => OUTCOME_UNKNOWN.to_string(),
        };
        error.hint(next)
    }
}

/// The hint about a command that may have been executed although no response arrived. All
/// components use exactly this text, so that the hint is recognized when it comes from another
/// process.
pub const OUTCOME_UNKNOWN: &str =
    "it may have been taken nevertheless: check with `ardea describe JOB`, and try again if not";

/// Returns true if the hint `next` can be combined with [`OUTCOME_UNKNOWN`]: it is another hint,
/// and does not suggest a repetition of the command. Hints of [`ErrorCode::Superseded`] always
/// suggest one.
fn is_combinable(error: &Error, next: &str) -> bool {
    error.code() != ErrorCode::Superseded && next != OUTCOME_UNKNOWN && next != TRY_AGAIN
}

impl Client {
    /// Sends a request. Retries it at the same or another host as long as a retry is safe and may
    /// help.
    pub(super) async fn ask(&self, asked: ApiRequest) -> Result<SuccessResponse, RequestFailed> {
        let mut tries = RetryState::begin(Instant::now());
        loop {
            let asked_at = self.hosts.at();
            let answer = asked.send_following_redirects(
                &asked_at,
                (self.token.as_ref(), self.tls.as_ref()),
                self.timeout,
                &tries.left,
            );
            let missed = match answer.await {
                Ok(answered) => return Ok(answered),
                Err(missed) => missed,
            };
            tries.outcome_unknown |= missed.may_be_executed() && !asked.is_read();
            // The conflicting change may come from an earlier try of this request.
            let is_own = tries.outcome_unknown && missed.error.code() == ErrorCode::WrongState;
            let may_repeat = !tries.outcome_unknown || asked.may_be_repeated();
            let now = Instant::now();
            let deadline = tries.deadline(now, missed.how, self.retry_timeout);
            let may_help = (missed.is_transient() || is_own) && now < deadline;
            let is_alone =
                self.hosts.find.is_none() && !matches!(missed.how, FailureKind::RetryLater(_));
            if !may_help || !may_repeat || is_alone {
                return Err(tries.failure(missed.error));
            }
            if matches!(missed.how, FailureKind::Unresponsive { .. }) {
                tries.left.add(missed.place.clone());
            }
            self.select_next(asked_at, &missed, &mut tries, deadline)
                .await
                .map_err(|error| tries.failure(error))?;
        }
    }

    /// Selects the host of the next try, after the retry delay.
    async fn select_next(
        &self,
        asked_at: Endpoint,
        missed: &TryFailed,
        tries: &mut RetryState,
        deadline: Instant,
    ) -> Result<()> {
        let is_there = missed.place != asked_at || !missed.is_unreachable();
        if is_there {
            // The host responds, but the job has no leader, so discovery starts over.
            tries.failed.clear();
            let after = match missed.how {
                FailureKind::RetryLater(after) => after,
                _ => RETRY_DELAY,
            };
            // One last try at the deadline, even if the host asks for a longer delay.
            let left = deadline.saturating_duration_since(Instant::now());
            sleep(after.min(left)).await;
            if missed.place != asked_at {
                return Ok(());
            }
        } else {
            tries.failed.push(asked_at.clone());
        }
        let places = self.places(deadline).await;
        let mut others = places.iter();
        let next = others
            .find(|place| **place != asked_at && !tries.failed.contains(place))
            .cloned();
        let is_only = places.iter().all(|place| *place == asked_at);
        match next {
            Some(next) => self.hosts.set_current(next),
            None if is_there => {}
            // The host may be up. If it is down, the next connection is refused.
            None if is_only && missed.how == FailureKind::NoResponse => sleep(RETRY_DELAY).await,
            None if is_only => return Err(missed.error.clone()),
            None => {
                let error = Error::new(ErrorCode::Network, "no host of the cluster answers")
                    .because(missed.error.without_hint());
                return Err(error.hint(
                    "start the cluster (ardea cluster start), or name its interface with --at",
                ));
            }
        }
        Ok(())
    }

    /// Returns the discovered hosts; an empty list if discovery fails.
    async fn places(&self, deadline: Instant) -> Vec<Endpoint> {
        let Some(find) = &self.hosts.find else {
            return Vec::new();
        };
        let found = timeout_at(deadline, find()).await;
        let bases = found.ok().and_then(Result::ok).unwrap_or_default();
        let places = bases.iter().filter_map(|base| Endpoint::parse(base).ok());
        places.collect()
    }
}

impl RetryState {
    fn begin(began: Instant) -> Self {
        RetryState {
            began,
            missing_since: began,
            left: BackoffList::default(),
            failed: Vec::new(),
            outcome_unknown: false,
        }
    }

    /// Returns the deadline of retries: after the caller's retry timeout if a host asks for a
    /// retry, otherwise after [`LEADER_CHANGE_TIMEOUT`].
    fn deadline(&mut self, now: Instant, how: FailureKind, patience: Duration) -> Instant {
        match how {
            FailureKind::RetryLater(_) => {
                // A failure after this response starts a new period.
                self.missing_since = now;
                self.began + patience
            }
            _ => self.missing_since + LEADER_CHANGE_TIMEOUT,
        }
    }

    fn failure(&self, error: Error) -> RequestFailed {
        RequestFailed {
            error,
            outcome_unknown: self.outcome_unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_of(error: Error, is_doubtful: bool) -> String {
        let error = Error::from(RequestFailed {
            error,
            outcome_unknown: is_doubtful,
        });
        error.hint_text().unwrap_or_default().to_string()
    }

    #[test]
    fn an_unknown_outcome_is_reported_once_and_without_other_promises() {
        let promise = "the request is repeated to the new leader";
        for (code, hint) in [
            (ErrorCode::Superseded, promise),
            (ErrorCode::Superseded, OUTCOME_UNKNOWN),
            (ErrorCode::StateUnavailable, OUTCOME_UNKNOWN),
            (ErrorCode::Network, TRY_AGAIN),
        ] {
            let error = Error::new(code, "lost").hint(hint);
            assert_eq!(next_of(error.clone(), true), OUTCOME_UNKNOWN);
            assert_eq!(next_of(error, false), hint);
        }
        let without = Error::new(ErrorCode::Network, "lost");
        assert_eq!(next_of(without, true), OUTCOME_UNKNOWN);
    }

    #[test]
    fn what_can_be_done_besides_looking_is_told_behind_the_doubt() {
        let hung = Error::new(ErrorCode::Network, "it hangs").hint("end it, or let it go on");
        assert_eq!(
            next_of(hung, true),
            "it may have been taken nevertheless: check with `ardea describe JOB`, and try again if not; \
             end it, or let it go on"
        );
    }

    #[test]
    fn what_fails_after_a_long_wait_has_its_own_time() {
        let (begin, minute) = (Instant::now(), Duration::from_secs(60));
        let mut tries = RetryState::begin(begin);
        let mut after = |seconds, how| {
            let now = begin + Duration::from_secs(seconds);
            tries.deadline(now, how, minute) - begin
        };
        assert_eq!(after(1, FailureKind::NotSent), LEADER_CHANGE_TIMEOUT);
        assert_eq!(after(30, FailureKind::RetryLater(RETRY_DELAY)), minute);
        let deadline = Duration::from_secs(30) + LEADER_CHANGE_TIMEOUT;
        assert_eq!(after(31, FailureKind::NotSent), deadline);
        assert_eq!(after(32, FailureKind::ErrorResponse), deadline);
    }
}
