//! The plan of faults, which follows from a seed only.
//!
//! A deck of all kinds of faults is shuffled and dealt repeatedly, so that a plan as long as the
//! deck has each of them. A lasting fault may be accompanied by an instant one. Sometimes the next
//! fault does not wait until the job has recovered from the one before.

use std::fmt;

use crate::random::SeededRandom;

/// The vertices whose parallelism is changed.
pub const RESCALED: [&str; 5] = ["pairs", "near", "rates", "silences", "balances"];

/// The maximum parallelism of a rescaled vertex.
const MOST_INSTANCES: u64 = 3;

/// The maximum number of consecutive faults without waiting for recovery.
const MOST_AT_A_RUN: u32 = 2;

/// An instant fault. Its number selects a target, modulo the number of targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstantFault {
    /// SIGKILL to a container's worker.
    Worker(u64),
    /// SIGKILL to all workers at once.
    AllWorkers,
    /// SIGKILL to a host's process; its containers keep running.
    Host(u64),
    /// SIGKILL to the process of the host that leads the job.
    Master,
    /// SIGKILL to the leader and to a worker.
    MasterAndWorker(u64),
    /// SIGKILL to all processes on a host.
    Machine(u64),
}

/// A lasting fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LastingFault {
    /// A worker is stopped (SIGSTOP).
    WorkerStalls(u64),
    /// The process of a host is stopped.
    HostStalls(u64),
    /// The process of the host that leads the job is stopped.
    MasterStalls,
    /// A host is cut off from all others.
    HostCut(u64),
    /// The host that leads the job is cut off from all others.
    MasterCut,
    /// Two hosts can't reach each other.
    PairCut(u64, u64),
    /// The Kafka broker is down.
    Kafka,
    /// The database server is down.
    Postgres,
    /// The metadata store's server is down.
    State,
    /// The disk of the checkpoints is full.
    DiskFull,
    /// The folder of checkpoints is missing, or the object store is down.
    FolderAway,
    /// The user pauses the job.
    Paused,
}

/// An operation on the job, or damage to its checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A change of a vertex's parallelism.
    Rescale(&'static str, u32),
    /// A restart of a container.
    Restart(u64),
    /// An upgrade to the same program.
    Upgrade,
    /// Damage to the newest checkpoint, which the job then has to restore; afterwards the file is
    /// repaired.
    Damage(u64),
}

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Blow(InstantFault),
    Spell {
        spell: LastingFault,
        millis: u64,
        /// An instant fault in the middle of the lasting one.
        amid: Option<InstantFault>,
    },
    Deed(Operation),
}

/// The continuation after a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The job recovers, and commits.
    Recovers,
    /// The next fault follows after this number of milliseconds.
    GoesOn(u64),
}

/// A fault and its continuation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    pub fault: Fault,
    pub then: Then,
}

/// The kinds of faults that a machine permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// True if hosts can be cut off and the metadata store has a server: there are network
    /// namespaces.
    pub cuts: bool,
    /// True if there is a small disk: file systems can be mounted.
    pub fills: bool,
    /// True if checkpoints are in files, which can be damaged, and not in a bucket.
    pub damages: bool,
}

/// A constructor of a kind of fault, a card of the deck.
type Card = fn(&mut SeededRandom) -> Fault;

/// Returns the plan of the seed `seed`: `faults` faults, of the kinds in `able`.
pub fn plan(seed: u64, faults: usize, able: Capabilities) -> Vec<Step> {
    let mut dice = SeededRandom::of(seed);
    let mut steps: Vec<Step> = Vec::with_capacity(faults);
    let (mut deck, mut at_a_run) = (Vec::new(), 0);
    while steps.len() < faults {
        if deck.is_empty() {
            deck = cards(able);
            dice.shuffle(&mut deck);
        }
        let Some(card) = deck.pop() else { break };
        let fault = card(&mut dice);
        let is_last = steps.len() + 1 == faults;
        let goes_on = dice.percent(35) && at_a_run < MOST_AT_A_RUN && !is_last;
        at_a_run = if goes_on { at_a_run + 1 } else { 0 };
        let then = match goes_on {
            true => Then::GoesOn(dice.between(0, 1_500)),
            false => Then::Recovers,
        };
        steps.push(Step { fault, then });
    }
    steps
}

/// Returns the number of permitted kinds.
pub fn kinds(able: Capabilities) -> usize {
    cards(able).len()
}

fn cards(able: Capabilities) -> Vec<Card> {
    let mut cards = ANYWHERE.to_vec();
    if able.damages {
        cards.extend(WITH_FILES);
    }
    if able.cuts {
        cards.extend(WITH_NAMESPACES);
    }
    if able.fills {
        cards.extend(WITH_MOUNTS);
    }
    cards
}

const ANYWHERE: [Card; 17] = [
    |dice| Fault::Blow(InstantFault::Worker(dice.below(100))),
    |_| Fault::Blow(InstantFault::AllWorkers),
    |dice| Fault::Blow(InstantFault::Host(dice.below(100))),
    |_| Fault::Blow(InstantFault::Master),
    |dice| Fault::Blow(InstantFault::MasterAndWorker(dice.below(100))),
    |dice| Fault::Blow(InstantFault::Machine(dice.below(100))),
    |dice| {
        let who = dice.below(100);
        lasting(dice, LastingFault::WorkerStalls(who), 300, 5_000)
    },
    |dice| {
        let who = dice.below(100);
        lasting(dice, LastingFault::HostStalls(who), 300, 5_000)
    },
    |dice| lasting(dice, LastingFault::MasterStalls, 300, 8_000),
    |dice| lasting(dice, LastingFault::Kafka, 500, 6_000),
    |dice| lasting(dice, LastingFault::Postgres, 500, 6_000),
    |dice| lasting(dice, LastingFault::Paused, 200, 3_000),
    folder_away,
    rescale,
    rescale,
    |dice| Fault::Deed(Operation::Restart(dice.below(100))),
    |_| Fault::Deed(Operation::Upgrade),
];

const WITH_FILES: [Card; 1] = [|dice| Fault::Deed(Operation::Damage(dice.roll()))];

const WITH_NAMESPACES: [Card; 4] = [
    |dice| {
        let who = dice.below(100);
        lasting(dice, LastingFault::HostCut(who), 1_000, 12_000)
    },
    |dice| lasting(dice, LastingFault::MasterCut, 1_000, 12_000),
    |dice| {
        let (one, other) = (dice.below(100), dice.below(100));
        lasting(dice, LastingFault::PairCut(one, other), 1_000, 8_000)
    },
    |dice| lasting(dice, LastingFault::State, 500, 8_000),
];

const WITH_MOUNTS: [Card; 1] = [|dice| lasting(dice, LastingFault::DiskFull, 500, 5_000)];

fn lasting(dice: &mut SeededRandom, spell: LastingFault, least: u64, most: u64) -> Fault {
    let millis = dice.between(least, most);
    let amid = dice.percent(40).then(|| blow(dice));
    Fault::Spell {
        spell,
        millis,
        amid,
    }
}

/// Removes the folder, with an instant fault meanwhile: without one, no checkpoint would have to be
/// read.
fn folder_away(dice: &mut SeededRandom) -> Fault {
    let spell = LastingFault::FolderAway;
    let (millis, amid) = (dice.between(500, 5_000), Some(blow(dice)));
    Fault::Spell {
        spell,
        millis,
        amid,
    }
}

fn rescale(dice: &mut SeededRandom) -> Fault {
    let vertex = RESCALED[dice.below(RESCALED.len() as u64) as usize];
    let count = dice.between(1, MOST_INSTANCES);
    Fault::Deed(Operation::Rescale(vertex, count as u32))
}

fn blow(dice: &mut SeededRandom) -> InstantFault {
    match dice.below(10) {
        0..=3 => InstantFault::Worker(dice.below(100)),
        4 => InstantFault::AllWorkers,
        5 | 6 => InstantFault::Host(dice.below(100)),
        7 | 8 => InstantFault::Master,
        _ => InstantFault::MasterAndWorker(dice.below(100)),
    }
}

impl fmt::Display for InstantFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InstantFault::Worker(who) => write!(f, "worker {who} is killed"),
            InstantFault::AllWorkers => f.write_str("all workers are killed"),
            InstantFault::Host(who) => write!(f, "the process of host {who} is killed"),
            InstantFault::Master => f.write_str("the host that leads is killed"),
            InstantFault::MasterAndWorker(who) => {
                write!(f, "the host that leads and worker {who} are killed")
            }
            InstantFault::Machine(who) => write!(f, "all on host {who} is killed"),
        }
    }
}

impl fmt::Display for LastingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LastingFault::WorkerStalls(who) => write!(f, "worker {who} stands still"),
            LastingFault::HostStalls(who) => write!(f, "the process of host {who} stands still"),
            LastingFault::MasterStalls => f.write_str("the host that leads stands still"),
            LastingFault::HostCut(who) => write!(f, "host {who} is cut off"),
            LastingFault::MasterCut => f.write_str("the host that leads is cut off"),
            LastingFault::PairCut(one, other) => write!(f, "hosts {one} and {other} are cut apart"),
            LastingFault::Kafka => f.write_str("Kafka is gone"),
            LastingFault::Postgres => f.write_str("PostgreSQL is gone"),
            LastingFault::State => f.write_str("the metadata store is gone"),
            LastingFault::DiskFull => f.write_str("the disk of checkpoints is full"),
            LastingFault::FolderAway => f.write_str("the folder of checkpoints is away"),
            LastingFault::Paused => f.write_str("the job is paused"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Rescale(vertex, count) => write!(f, "{vertex} gets {count} instances"),
            Operation::Restart(who) => write!(f, "container {who} is started anew"),
            Operation::Upgrade => f.write_str("the program is followed by itself"),
            Operation::Damage(_) => {
                f.write_str("the newest checkpoint is damaged, and restored later")
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Blow(blow) => blow.fmt(f),
            Fault::Deed(deed) => deed.fmt(f),
            Fault::Spell {
                spell,
                millis,
                amid,
            } => {
                write!(f, "{spell} for {millis} ms")?;
                amid.map_or(Ok(()), |blow| write!(f, "; meanwhile {blow}"))
            }
        }
    }
}

/// Tests of the plan.
pub mod promises {
    use super::*;

    const ALL: Capabilities = Capabilities {
        cuts: true,
        fills: true,
        damages: true,
    };
    const NONE: Capabilities = Capabilities {
        cuts: false,
        fills: false,
        damages: false,
    };

    pub fn a_plan_follows_from_its_seed_and_from_nothing_else() {
        for seed in 0..50 {
            let long = plan(seed, 300, ALL);
            assert_eq!(long, plan(seed, 300, ALL));
            assert_eq!(long.len(), 300);
            assert_ne!(long, plan(seed + 1, 300, ALL));
        }
        // A fixed expectation: the sequence of a seed must never change, so that recorded seeds can
        // be run again.
        let first: Vec<u64> = (0..3)
            .scan(SeededRandom::of(7), |dice, _| Some(dice.roll()))
            .collect();
        assert_eq!(
            first,
            [
                7191089600892374487,
                309689372594955804,
                16616101746815609346
            ]
        );
    }

    pub fn each_kind_of_fault_comes_in_a_plan_as_long_as_there_are_kinds() {
        for able in [ALL, NONE] {
            for seed in 0..50 {
                let dealt = plan(seed, kinds(able), able);
                let damaged = able.damages.then_some("the newest checkpoint is damaged");
                let faults = [
                    "all workers are killed",
                    "Kafka is gone",
                    "the folder of checkpoints is away",
                    "the program is followed",
                    "instances",
                ];
                for fault in faults.into_iter().chain(damaged) {
                    let mut told = dealt.iter().map(|step| step.fault.to_string());
                    assert!(told.any(|told| told.contains(fault)), "{seed}: {fault}");
                }
            }
        }
    }

    pub fn what_a_machine_can_not_do_is_in_no_plan() {
        for seed in 0..50 {
            for step in plan(seed, 200, NONE) {
                assert!(!matches!(step.fault, Fault::Deed(Operation::Damage(_))));
                let Fault::Spell { spell, .. } = step.fault else {
                    continue;
                };
                let is_possible = !matches!(
                    spell,
                    LastingFault::HostCut(_)
                        | LastingFault::MasterCut
                        | LastingFault::PairCut(..)
                        | LastingFault::State
                        | LastingFault::DiskFull
                );
                assert!(is_possible, "{spell}");
            }
        }
    }

    pub fn the_job_is_given_time_to_recover_again_and_again_and_at_the_end() {
        for seed in 0..50 {
            let steps = plan(seed, 200, ALL);
            let recovers = |step: &Step| step.then == Then::Recovers;
            let most = MOST_AT_A_RUN as usize + 1;
            assert!(steps.windows(most).all(|run| run.iter().any(recovers)));
            assert!(steps.iter().any(|step| !recovers(step)));
            assert!(steps.last().is_some_and(recovers));
        }
    }
}
