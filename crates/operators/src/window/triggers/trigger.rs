//! Triggers for early window results.

use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result, Timestamp};

/// The decision of a trigger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Emit the present results of the key's open windows.
    Fire,
    /// Do not emit.
    Wait,
}

/// Decides when the windows of a key emit early results, for records of type `T`.
///
/// A trigger has a state per key, from the key's first record until no open window contains a
/// record of the key. When it fires, every open window with a record of the key emits its present
/// result, marked [`Firing::Early`](crate::Firing::Early), in order of the windows' ends. The
/// result at the end of the window is emitted as well. A key has up to n open windows if the length
/// is n times the slide, so early results suit windows with few slides.
///
/// ```
/// use ardea_core::Timestamp;
/// use ardea_operators::{Decision, Trigger};
///
/// /// Fires for every price above a limit.
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
    /// The state of a key.
    type State: Default + Send + 'static;

    /// True if the trigger can fire. An inactive trigger costs nothing.
    const ACTIVE: bool = true;

    /// Called once per record, after the record was added.
    fn on_record(&self, state: &mut Self::State, record: &T, time: Timestamp) -> Decision;

    /// Returns the interval of [`on_wake`](Self::on_wake) calls for each key, in processing time;
    /// `None` for never.
    fn period(&self) -> Option<Duration> {
        None
    }

    /// Called for each key once per [`period`](Self::period).
    fn on_wake(&self, state: &mut Self::State) -> Decision {
        let _ = state;
        Decision::Wait
    }
}

/// A trigger that never fires.
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
    /// Fires once per `period` of processing time, for the keys with a record since the last
    /// period.
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

    /// Fires after every `records` records of a key.
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
    /// The number of records of the key since it last fired.
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
