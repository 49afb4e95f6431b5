//! Which hosts a client asks: one, and where that fails the next.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use tokio::time::{Instant, sleep, timeout_at};

use super::Client;
use super::place::Place;
use super::request::{AGAIN, Answered, Asked, Miss, Missed};

/// How long a request is asked again while the job changes its leader: longer than a lease takes to run out.
pub(super) const SETTLES_WITHIN: Duration = Duration::from_secs(20);

/// How long to wait before it is asked again, if no host says how long.
pub(super) const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// For how long a host that answers nothing is not asked again.
const LEFT_FOR: Duration = Duration::from_secs(5);

/// Where the interfaces of a cluster's hosts are, at the moment.
pub(super) type Found = Pin<Box<dyn Future<Output = Result<Vec<String>>> + Send>>;

/// The hosts that may be asked. Clones share which one answered last.
#[derive(Clone)]
pub(super) struct Hosts {
    /// The one that is asked first.
    at: Arc<Mutex<Place>>,
    find: Option<Arc<dyn Fn() -> Found + Send + Sync>>,
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts").field("at", &self.at()).finish()
    }
}

impl Hosts {
    /// One, and no other.
    pub(super) fn only(place: Place) -> Self {
        Hosts {
            at: Arc::new(Mutex::new(place)),
            find: None,
        }
    }

    /// The same one first, and then those that are found.
    pub(super) fn found_by(&self, find: Arc<dyn Fn() -> Found + Send + Sync>) -> Self {
        Hosts {
            at: Arc::new(Mutex::new(self.at())),
            find: Some(find),
        }
    }

    /// The one that is asked first.
    pub(super) fn at(&self) -> Place {
        self.at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn turn_to(&self, place: Place) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }
}

/// Hosts that answer nothing, and until when they are left alone.
#[derive(Debug, Default)]
pub(super) struct Left(Vec<(Place, Instant)>);

impl Left {
    /// Whether this one is left alone now.
    pub(super) fn has(&self, place: &Place) -> bool {
        let now = Instant::now();
        let mut left = self.0.iter();
        left.any(|(left, until)| left == place && *until > now)
    }

    fn add(&mut self, place: Place) {
        self.0.retain(|(left, _)| *left != place);
        self.0.push((place, Instant::now() + LEFT_FOR));
    }
}

/// What came of a request at one host after the other.
#[derive(Debug)]
struct Tries {
    began: Instant,
    /// Since when nobody has answered as a host does that is there.
    missing_since: Instant,
    left: Left,
    /// Those that could not be asked, since one was that could.
    failed: Vec<Place>,
    /// Whether a host may have taken it that did not say so.
    is_doubtful: bool,
}

/// Why a request came to nothing at last.
#[derive(Debug)]
pub(super) struct GaveUp {
    pub(super) error: Error,
    /// Whether it changes something, and may have been taken all the same.
    pub(super) is_doubtful: bool,
}

impl From<GaveUp> for Error {
    fn from(gave_up: GaveUp) -> Self {
        let error = gave_up.error;
        if !gave_up.is_doubtful {
            return error;
        }
        let next = error.what_next().filter(|next| adds_to_doubt(&error, next));
        let next = match next {
            Some(next) => format!("{DOUBTFUL}; {next}"),
            None => DOUBTFUL.to_string(),
        };
        error.hint(next)
    }
}

/// What to do about a command that may have been done, though nobody said so. Whoever tells of that tells this, and nothing else, so that
/// it is known again where it comes from another process.
pub const DOUBTFUL: &str =
    "it may have been taken all the same: `ardea describe JOB` shows whether; else try again";

/// Whether a hint can stand beside the doubt: it does not tell of it as well, and does not tell that the command is to be given again, or
/// that somebody does that, as if there were none. Those of whoever has lost the lead all do.
fn adds_to_doubt(error: &Error, next: &str) -> bool {
    error.code() != ErrorCode::Superseded && next != DOUBTFUL && next != AGAIN
}

impl Client {
    /// Asks a host, and where that fails another one, as long as that is safe and may help.
    pub(super) async fn ask(&self, asked: Asked) -> Result<Answered, GaveUp> {
        let mut tries = Tries::begin(Instant::now());
        loop {
            let asked_at = self.hosts.at();
            let answer = asked.of(
                &asked_at,
                (self.token.as_ref(), self.tls.as_ref()),
                self.patience,
                &tries.left,
            );
            let missed = match answer.await {
                Ok(answered) => return Ok(answered),
                Err(missed) => missed,
            };
            tries.is_doubtful |= missed.may_be_taken() && !asked.is_read();
            // The change that it is in the way of may be its own.
            let is_own = tries.is_doubtful && missed.error.code() == ErrorCode::WrongState;
            let may_repeat = !tries.is_doubtful || asked.may_be_repeated();
            let now = Instant::now();
            let deadline = tries.deadline(now, missed.how, self.asks_again_for);
            let may_help = (missed.is_passing() || is_own) && now < deadline;
            let is_alone = self.hosts.find.is_none() && !matches!(missed.how, Miss::NotYet(_));
            if !may_help || !may_repeat || is_alone {
                return Err(tries.gave_up(missed.error));
            }
            if matches!(missed.how, Miss::Hung { .. }) {
                tries.left.add(missed.place.clone());
            }
            self.turn(asked_at, &missed, &mut tries, deadline)
                .await
                .map_err(|error| tries.gave_up(error))?;
        }
    }

    /// Turns to the host that is asked next, when it is to be asked.
    async fn turn(
        &self,
        asked_at: Place,
        missed: &Missed,
        tries: &mut Tries,
        deadline: Instant,
    ) -> Result<()> {
        let is_there = missed.place != asked_at || !missed.is_away();
        if is_there {
            // It is the leader that is missing: it is looked for again.
            tries.failed.clear();
            let after = match missed.how {
                Miss::NotYet(after) => after,
                _ => AGAIN_AFTER,
            };
            // Once more when time is up, however much later a host wants to be asked.
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
            Some(next) => self.hosts.turn_to(next),
            None if is_there => {}
            // It is there, or the next connection is refused.
            None if is_only && missed.how == Miss::Lost => sleep(AGAIN_AFTER).await,
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

    /// Where hosts are; nowhere if nobody knows.
    async fn places(&self, deadline: Instant) -> Vec<Place> {
        let Some(find) = &self.hosts.find else {
            return Vec::new();
        };
        let found = timeout_at(deadline, find()).await;
        let bases = found.ok().and_then(Result::ok).unwrap_or_default();
        let places = bases.iter().filter_map(|base| Place::parse(base).ok());
        places.collect()
    }
}

impl Tries {
    fn begin(began: Instant) -> Self {
        Tries {
            began,
            missing_since: began,
            left: Left::default(),
            failed: Vec::new(),
            is_doubtful: false,
        }
    }

    /// Until when it is asked again: who says "not yet" is waited for as long as patience lasts, all else until the job has a leader.
    fn deadline(&mut self, now: Instant, how: Miss, patience: Duration) -> Instant {
        match how {
            Miss::NotYet(_) => {
                // Whatever fails after this has only begun to.
                self.missing_since = now;
                self.began + patience
            }
            _ => self.missing_since + SETTLES_WITHIN,
        }
    }

    fn gave_up(&self, error: Error) -> GaveUp {
        GaveUp {
            error,
            is_doubtful: self.is_doubtful,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_of(error: Error, is_doubtful: bool) -> String {
        let error = Error::from(GaveUp { error, is_doubtful });
        error.what_next().unwrap_or_default().to_string()
    }

    #[test]
    fn doubt_is_told_once_and_nothing_is_promised_beside_it() {
        let promise = "what was asked of it is asked again of whoever leads it then";
        for (code, hint) in [
            (ErrorCode::Superseded, promise),
            (ErrorCode::Superseded, DOUBTFUL),
            (ErrorCode::StateUnavailable, DOUBTFUL),
            (ErrorCode::Network, AGAIN),
        ] {
            let error = Error::new(code, "lost").hint(hint);
            assert_eq!(next_of(error.clone(), true), DOUBTFUL);
            assert_eq!(next_of(error, false), hint);
        }
        let without = Error::new(ErrorCode::Network, "lost");
        assert_eq!(next_of(without, true), DOUBTFUL);
    }

    #[test]
    fn what_can_be_done_besides_looking_is_told_behind_the_doubt() {
        let hung = Error::new(ErrorCode::Network, "it hangs").hint("end it, or let it go on");
        assert_eq!(
            next_of(hung, true),
            "it may have been taken all the same: `ardea describe JOB` shows whether; else try again; \
             end it, or let it go on"
        );
    }

    #[test]
    fn what_fails_after_a_long_wait_has_its_own_time() {
        let (begin, minute) = (Instant::now(), Duration::from_secs(60));
        let mut tries = Tries::begin(begin);
        let mut after = |seconds, how| {
            let now = begin + Duration::from_secs(seconds);
            tries.deadline(now, how, minute) - begin
        };
        assert_eq!(after(1, Miss::NotSent), SETTLES_WITHIN);
        assert_eq!(after(30, Miss::NotYet(AGAIN_AFTER)), minute);
        let deadline = Duration::from_secs(30) + SETTLES_WITHIN;
        assert_eq!(after(31, Miss::NotSent), deadline);
        assert_eq!(after(32, Miss::Said), deadline);
    }
}
