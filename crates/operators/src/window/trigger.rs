//! When windows give early results.

use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Timestamp};

/// What a trigger says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Emit now what the key's open windows hold.
    Fire,
    /// Not yet.
    Wait,
}

/// Decides when the windows of a key give early results, of records of type `T`.
///
/// A trigger keeps a state for each key, from the key's first record until no open window holds a record of it. When it
/// fires, every window that is not closed yet and holds a record of the key emits what it holds, marked
/// [`Firing::Early`](crate::Firing::Early), in order of their ends; the result at the end of the window comes all the same.
/// A window whose length is n times its slide is one of up to n open ones, so early results suit windows that slide in few
/// steps.
///
/// ```
/// use ardea_core::Timestamp;
/// use ardea_operators::{Decision, Trigger};
///
/// /// Tells early about every price above a limit.
/// struct Above(u64);
///
/// impl Trigger<u64> for Above {
///     type State = ();
///     fn on_record(&self, _: &mut (), price: &u64, _: Timestamp) -> Decision {
///         if *price > self.0 { Decision::Fire } else { Decision::Wait }
///     }
/// }
/// # assert_eq!(Above(3).on_record(&mut (), &4, Timestamp::MIN), Decision::Fire);
/// ```
pub trait Trigger<T>: Send + Sync + 'static {
    /// What is remembered of a key.
    type State: Default + Send + 'static;

    /// Whether it ever fires; an inactive trigger costs nothing.
    const ACTIVE: bool = true;

    /// A record came: called once for each, after it was counted.
    fn on_record(&self, state: &mut Self::State, record: &T, time: Timestamp) -> Decision;

    /// How often, in processing time, [`on_wake`](Self::on_wake) is to be called for each key; `None` for never.
    fn period(&self) -> Option<Duration> {
        None
    }

    /// A [`period`](Self::period) is over.
    fn on_wake(&self, state: &mut Self::State) -> Decision {
        let _ = state;
        Decision::Wait
    }
}

/// No early results.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEarly;

impl<T> Trigger<T> for NoEarly {
    type State = ();
    const ACTIVE: bool = false;

    #[inline]
    fn on_record(&self, _: &mut (), _: &T, _: Timestamp) -> Decision {
        Decision::Wait
    }
}

/// Early results by the clock or by the number of records.
///
/// ```
/// use std::time::Duration;
/// use ardea_operators::EarlyFiring;
///
/// let every_second = EarlyFiring::every(Duration::from_secs(1))?;
/// let by_tens = EarlyFiring::each_records(10)?;
/// assert!(EarlyFiring::each_records(0).is_err());
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct EarlyFiring(Rule);

#[derive(Clone, Copy, Debug)]
enum Rule {
    Every(Duration),
    EachRecords(u64),
}

impl EarlyFiring {
    /// Once a `period` of processing time, for the keys that have had a record since the last time.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the period is zero.
    pub fn every(period: Duration) -> Result<Self> {
        if period.is_zero() {
            let what = "the period of early results must be more than zero";
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("for a result at each record, use each_records(1)"));
        }
        Ok(EarlyFiring(Rule::Every(period)))
    }

    /// After every `records` records of a key.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if `records` is zero.
    pub fn each_records(records: u64) -> Result<Self> {
        if records == 0 {
            let what = "early results after every 0 records make no sense";
            return Err(Error::new(ErrorCode::InvalidJob, what).hint("give at least 1"));
        }
        Ok(EarlyFiring(Rule::EachRecords(records)))
    }
}

impl<T> Trigger<T> for EarlyFiring {
    /// The records of the key since it fired last.
    type State = u64;

    #[inline]
    fn on_record(&self, since: &mut u64, _: &T, _: Timestamp) -> Decision {
        *since += 1;
        match self.0 {
            Rule::EachRecords(records) if *since >= records => {
                *since = 0;
                Decision::Fire
            }
            _ => Decision::Wait,
        }
    }

    fn period(&self) -> Option<Duration> {
        match self.0 {
            Rule::Every(period) => Some(period),
            Rule::EachRecords(_) => None,
        }
    }

    fn on_wake(&self, since: &mut u64) -> Decision {
        if std::mem::take(since) > 0 {
            Decision::Fire
        } else {
            Decision::Wait
        }
    }
}
