//! The simulated world: its clock, the queue of future events, the network, random numbers and the
//! log, and the run of a workload in it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::DerefMut;
use std::time::Duration;

use crate::network::{Network, NetworkConditions};
use crate::random::Random;

/// The number of log lines retained for a failure report.
const REMEMBERED: usize = 2_000;

/// The time after the last fault within which everything must have recovered.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(120);

/// A failed run.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed, which reproduces the failure.
    pub seed: u64,
    /// The simulated time of the failure.
    pub at: Duration,
    /// The violated invariant, or the unmet condition of recovery.
    pub what: String,
    /// The most recent log lines.
    pub log: Vec<String>,
}

/// An event: a function of the workload.
type Event<W> = Box<dyn FnOnce(&mut W)>;

/// The part of a simulation that is common to all workloads, with events of the workload `W`.
pub struct World<W> {
    /// The time since the start.
    pub now: Duration,
    pub random: Random,
    pub network: Network,
    /// True if checkpoints cannot be read at the moment.
    pub is_damaged: bool,
    /// True if disks are full at the moment.
    pub is_full: bool,
    /// The number of events until now.
    pub steps: u64,
    /// Future events in order of time; events at the same time are ordered by insertion.
    events: BTreeMap<(Duration, u64), Event<W>>,
    planned: u64,
    broken: Option<String>,
    log: VecDeque<String>,
}

/// The processes, clients and invariants of a simulation, which run in a [`World`].
pub trait Simulation: DerefMut<Target = World<Self>> + Sized + 'static {
    /// The interval of the checks for recovery.
    const CHECK_INTERVAL: Duration;

    /// Checks the invariants that concern every event.
    fn check(&mut self) {}

    /// Returns true if nothing more can happen.
    fn has_ended(&mut self) -> bool {
        false
    }

    /// Returns a condition of recovery that is not met yet, or `None`.
    fn missing(&mut self) -> Option<String>;
}

/// Implements access to the field `world` of a workload.
macro_rules! in_world {
    ($workload:ty) => {
        impl std::ops::Deref for $workload {
            type Target = $crate::world::World<$workload>;

            fn deref(&self) -> &Self::Target {
                &self.world
            }
        }

        impl std::ops::DerefMut for $workload {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.world
            }
        }
    };
}
pub(crate) use in_world;

/// Runs a workload until it has recovered from its faults, which end at `until`. The events depend
/// only on the random numbers of the world.
///
/// # Errors
///
/// If an invariant is violated, or the workload has not recovered two minutes after the last fault.
pub fn run<W: Simulation>(
    workload: &mut W,
    seed: u64,
    until: Duration,
) -> Result<(), Box<Failure>> {
    let mut look_at = until;
    while !workload.has_ended() {
        let next = workload.events.pop_first();
        let Some(((now, _), event)) = next else {
            return Err(workload.failure(seed, "nothing happens any more".to_string()));
        };
        workload.now = now;
        workload.steps += 1;
        event(workload);
        workload.check();
        if let Some(broken) = workload.broken.take() {
            return Err(workload.failure(seed, broken));
        }
        if now < look_at {
            continue;
        }
        look_at = now + W::CHECK_INTERVAL;
        match workload.missing() {
            None => break,
            Some(what) if now > until + RECOVERY_TIMEOUT => {
                return Err(workload.failure(seed, what));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

impl<W> World<W> {
    /// Creates a world without events, in which all hosts are connected.
    pub fn new(random: Random) -> Self {
        World {
            now: Duration::ZERO,
            random,
            network: Network::default(),
            is_damaged: false,
            is_full: false,
            steps: 0,
            events: BTreeMap::new(),
            planned: 0,
            broken: None,
            log: VecDeque::new(),
        }
    }

    /// Plans an event.
    pub fn plan(&mut self, at: Duration, event: impl FnOnce(&mut W) + 'static) {
        self.planned += 1;
        self.events.insert((at, self.planned), Box::new(event));
    }

    /// Plans an event after `delay`.
    pub fn plan_in(&mut self, delay: Duration, event: impl FnOnce(&mut W) + 'static) {
        self.plan(self.now + delay, event);
    }

    /// Plans an event after a random time between these numbers of milliseconds.
    pub fn after(&mut self, least: u64, most: u64, event: impl FnOnce(&mut W) + 'static) {
        let millis = Duration::from_millis;
        let delay = self.random.time(millis(least), millis(most));
        self.plan_in(delay, event);
    }

    /// Returns the clock of a process that starts now, with a random drift of at most `most`
    /// thousandths.
    pub fn skewed_clock(&mut self, most: u64) -> SkewedClock {
        let drift = self.random.below(2 * most + 1) as i64 - most as i64;
        SkewedClock::new(self.now, 1_000 * drift)
    }

    /// Plans the arrivals of a message: none, one or two.
    pub fn transmit(&mut self, arrival: impl FnOnce(&mut W) + Clone + 'static) {
        for delay in self.network.arrivals(&mut self.random) {
            self.plan_in(delay, arrival.clone());
        }
    }

    /// Loses, duplicates and delays messages for a duration.
    pub fn storm(&mut self, long: Duration)
    where
        W: Simulation,
    {
        let millis = Duration::from_millis;
        self.network.conditions = NetworkConditions {
            delay: self.random.time(millis(1), millis(50)),
            lost: self.random.below(400),
            doubled: self.random.below(300),
            late: self.random.below(100),
        };
        self.plan_in(long, |sim| sim.network.conditions = NetworkConditions::FAIR);
    }

    /// Repairs the network and the disks.
    pub fn repair_all(&mut self) {
        self.network = Network::default();
        self.is_damaged = false;
        self.is_full = false;
    }

    /// Records the violation of an invariant, which ends the run.
    pub fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// Returns the result of a check, or records the violation that it has found.
    pub fn checked<T>(&mut self, result: Result<T, String>) -> Option<T> {
        result.map_err(|broken| self.breaks(broken)).ok()
    }

    /// Adds a line to the log.
    pub fn remember(&mut self, what: String) {
        if self.log.len() == REMEMBERED {
            self.log.pop_front();
        }
        let line = format!("{:9.3} {what}", self.now.as_secs_f64());
        self.log.push_back(line);
    }

    pub fn failure(&self, seed: u64, what: String) -> Box<Failure> {
        Box::new(Failure {
            seed,
            at: self.now,
            what,
            log: self.log.iter().cloned().collect(),
        })
    }
}

impl<W> Default for World<W> {
    fn default() -> Self {
        World::new(Random::new(0))
    }
}

/// The clock of a process, with an arbitrary origin and a small drift.
#[derive(Clone, Copy, Debug)]
pub struct SkewedClock {
    started: Duration,
    /// The drift in millionths.
    drift: i64,
}

impl SkewedClock {
    pub fn new(now: Duration, drift: i64) -> Self {
        SkewedClock {
            started: now,
            drift,
        }
    }

    pub fn read(&self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.started).as_micros() as i64;
        Duration::from_micros((passed + passed * self.drift / 1_000_000) as u64)
    }
}

/// Defines the statistics of one successful run, or of many.
macro_rules! report {
    ($(#[$of:meta])* $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$of])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            /// The number of events.
            pub steps: u64,
            $($(#[$doc])* pub $field: u64,)*
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                self.steps += other.steps;
                $(self.$field += other.$field;)*
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{} steps", self.steps)?;
                $(write!(f, ", {} {}", self.$field, stringify!($field).replace('_', " "))?;)*
                Ok(())
            }
        }
    };
}
pub(crate) use report;
