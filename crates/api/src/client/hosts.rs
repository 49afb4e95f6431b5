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
use super::request::{Answered, Asked, Missed};

/// How long a request is asked again while the job changes its leader: longer than a lease takes to run out.
const SETTLES_WITHIN: Duration = Duration::from_secs(20);

/// How long to wait before it is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

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
#[derive(Debug, Default)]
struct Tries {
    left: Left,
    /// Those that could not be asked, since one was that could.
    failed: Vec<Place>,
    /// Whether a host may have taken it that did not say so.
    is_doubtful: bool,
}

impl Client {
    /// Asks a host, and where that fails another one, as long as that is safe and may help.
    pub(super) async fn ask(&self, asked: Asked) -> Result<Answered> {
        let asked_since = Instant::now();
        let mut tries = Tries::default();
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
            tries.is_doubtful |= missed.may_be_taken && !asked.is_read();
            // The change that it is in the way of may be its own.
            let is_own = tries.is_doubtful && missed.error.code() == ErrorCode::WrongState;
            let may_repeat = !tries.is_doubtful || asked.may_be_repeated();
            let deadline = asked_since + self.settles_within(&missed);
            let may_help = (missed.is_passing() || is_own) && Instant::now() < deadline;
            let is_alone = self.hosts.find.is_none() && !missed.is_not_yet;
            if !may_help || !may_repeat || is_alone {
                return Err(tries.told(missed.error));
            }
            if missed.is_hung {
                tries.left.add(missed.place.clone());
            }
            self.turn(asked_at, &missed, &mut tries, deadline)
                .await
                .map_err(|error| tries.told(error))?;
        }
    }

    /// For how long it is asked again and again: whoever says "not yet" is waited for as long as patience lasts.
    fn settles_within(&self, missed: &Missed) -> Duration {
        match missed.is_not_yet {
            true => self.patience,
            false => self.patience.min(SETTLES_WITHIN),
        }
    }

    /// Turns to the host that is asked next.
    async fn turn(
        &self,
        asked_at: Place,
        missed: &Missed,
        tries: &mut Tries,
        deadline: Instant,
    ) -> Result<()> {
        let is_there = missed.place != asked_at || missed.error.code() != ErrorCode::Network;
        if is_there {
            // It is the leader that is missing: it is looked for again.
            tries.failed.clear();
            sleep(AGAIN_AFTER).await;
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
        match next {
            Some(next) => self.hosts.turn_to(next),
            None if is_there => {}
            None if places.iter().all(|place| *place == asked_at) => {
                return Err(missed.error.clone());
            }
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
    /// The error, with what is to be known of a change that may have been taken.
    fn told(&self, error: Error) -> Error {
        match self.is_doubtful {
            true => error.hint(DOUBTFUL),
            false => error,
        }
    }
}

const DOUBTFUL: &str =
    "it may have been taken all the same: `ardea describe JOB` shows whether; else try again";
