//! What goes wrong, and when: a plan of faults that follows from a seed and from nothing else.
//!
//! A deck of all kinds of faults is shuffled and dealt, again and again, so that a plan as long as the deck has each of them. What lasts for a while may be
//! interrupted by what strikes; and now and then the next fault does not wait until the job has recovered from the one before.

use std::fmt;

use crate::dice::Dice;

/// The vertices whose numbers of instances are changed.
pub const RESCALED: [&str; 5] = ["pairs", "near", "rates", "silences", "balances"];

/// The most instances that one of them gets.
const MOST_INSTANCES: u64 = 3;

/// So many faults in a row, at most, wait for no recovery: then the job shows that it still can.
const MOST_AT_A_RUN: u32 = 2;

/// What strikes at once. A number means one of those that there are, modulo how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blow {
    /// `kill -9` of a container's worker.
    Worker(u64),
    /// Of all workers at once.
    AllWorkers,
    /// Of the process that stands for a host; its containers go on.
    Host(u64),
    /// Of that of the host which leads the job.
    Master,
    /// Of that and of a worker.
    MasterAndWorker(u64),
    /// Of everything on a host.
    Machine(u64),
}

/// What lasts for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spell {
    /// A worker stands still (SIGSTOP).
    WorkerStalls(u64),
    /// The process of a host does.
    HostStalls(u64),
    /// That of the host which leads.
    MasterStalls,
    /// A host reaches nobody.
    HostCut(u64),
    /// The one that leads does not.
    MasterCut,
    /// Two hosts don't reach each other.
    PairCut(u64, u64),
    /// The broker is gone.
    Kafka,
    /// The database's server is.
    Postgres,
    /// The state manager's server is.
    State,
    /// There is no space where snapshots are.
    DiskFull,
    /// The folder of snapshots is not there, or the store whose bucket it is a part of.
    FolderAway,
    /// The job is paused by its user.
    Paused,
}

/// What somebody does to the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Another number of instances.
    Rescale(&'static str, u32),
    /// A container is started anew.
    Restart(u64),
    /// The program is followed by itself, as by a new version.
    Upgrade,
    /// A bit of the newest snapshot is turned around, and the job has to go back to it; then the file is restored.
    Damage(u64),
}

/// One thing that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Blow(Blow),
    Spell {
        spell: Spell,
        millis: u64,
        /// In the middle of it.
        amid: Option<Blow>,
    },
    Deed(Deed),
}

/// What comes after a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The job recovers, and commits.
    Recovers,
    /// The next fault, after so many milliseconds.
    GoesOn(u64),
}

/// A fault, and what comes after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    pub fault: Fault,
    pub then: Then,
}

/// What can be done on a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Able {
    /// Hosts can be cut off, and the state manager has a server: there are network namespaces.
    pub cuts: bool,
    /// There can be a small disk: file systems can be mounted.
    pub fills: bool,
    /// Snapshots are in files, which can be damaged: they are in no bucket.
    pub damages: bool,
}

/// A kind of fault, as it lies in the deck.
type Card = fn(&mut Dice) -> Fault;

/// The plan for this seed: so many faults, of the kinds that are possible.
pub fn plan(seed: u64, faults: usize, able: Able) -> Vec<Step> {
    let mut dice = Dice::of(seed);
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

/// How many kinds there are.
pub fn kinds(able: Able) -> usize {
    cards(able).len()
}

fn cards(able: Able) -> Vec<Card> {
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
    |dice| Fault::Blow(Blow::Worker(dice.below(100))),
    |_| Fault::Blow(Blow::AllWorkers),
    |dice| Fault::Blow(Blow::Host(dice.below(100))),
    |_| Fault::Blow(Blow::Master),
    |dice| Fault::Blow(Blow::MasterAndWorker(dice.below(100))),
    |dice| Fault::Blow(Blow::Machine(dice.below(100))),
    |dice| {
        let who = dice.below(100);
        lasting(dice, Spell::WorkerStalls(who), 300, 5_000)
    },
    |dice| {
        let who = dice.below(100);
        lasting(dice, Spell::HostStalls(who), 300, 5_000)
    },
    |dice| lasting(dice, Spell::MasterStalls, 300, 8_000),
    |dice| lasting(dice, Spell::Kafka, 500, 6_000),
    |dice| lasting(dice, Spell::Postgres, 500, 6_000),
    |dice| lasting(dice, Spell::Paused, 200, 3_000),
    folder_away,
    rescale,
    rescale,
    |dice| Fault::Deed(Deed::Restart(dice.below(100))),
    |_| Fault::Deed(Deed::Upgrade),
];

const WITH_FILES: [Card; 1] = [|dice| Fault::Deed(Deed::Damage(dice.roll()))];

const WITH_NAMESPACES: [Card; 4] = [
    |dice| {
        let who = dice.below(100);
        lasting(dice, Spell::HostCut(who), 1_000, 12_000)
    },
    |dice| lasting(dice, Spell::MasterCut, 1_000, 12_000),
    |dice| {
        let (one, other) = (dice.below(100), dice.below(100));
        lasting(dice, Spell::PairCut(one, other), 1_000, 8_000)
    },
    |dice| lasting(dice, Spell::State, 500, 8_000),
];

const WITH_MOUNTS: [Card; 1] = [|dice| lasting(dice, Spell::DiskFull, 500, 5_000)];

fn lasting(dice: &mut Dice, spell: Spell, least: u64, most: u64) -> Fault {
    let millis = dice.between(least, most);
    let amid = dice.percent(40).then(|| blow(dice));
    Fault::Spell {
        spell,
        millis,
        amid,
    }
}

/// Nobody would notice that it is gone, if nothing had to be read.
fn folder_away(dice: &mut Dice) -> Fault {
    let spell = Spell::FolderAway;
    let (millis, amid) = (dice.between(500, 5_000), Some(blow(dice)));
    Fault::Spell {
        spell,
        millis,
        amid,
    }
}

fn rescale(dice: &mut Dice) -> Fault {
    let vertex = RESCALED[dice.below(RESCALED.len() as u64) as usize];
    let count = dice.between(1, MOST_INSTANCES);
    Fault::Deed(Deed::Rescale(vertex, count as u32))
}

fn blow(dice: &mut Dice) -> Blow {
    match dice.below(10) {
        0..=3 => Blow::Worker(dice.below(100)),
        4 => Blow::AllWorkers,
        5 | 6 => Blow::Host(dice.below(100)),
        7 | 8 => Blow::Master,
        _ => Blow::MasterAndWorker(dice.below(100)),
    }
}

impl fmt::Display for Blow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blow::Worker(who) => write!(f, "worker {who} is killed"),
            Blow::AllWorkers => f.write_str("all workers are killed"),
            Blow::Host(who) => write!(f, "the process of host {who} is killed"),
            Blow::Master => f.write_str("the host that leads is killed"),
            Blow::MasterAndWorker(who) => {
                write!(f, "the host that leads and worker {who} are killed")
            }
            Blow::Machine(who) => write!(f, "all on host {who} is killed"),
        }
    }
}

impl fmt::Display for Spell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spell::WorkerStalls(who) => write!(f, "worker {who} stands still"),
            Spell::HostStalls(who) => write!(f, "the process of host {who} stands still"),
            Spell::MasterStalls => f.write_str("the host that leads stands still"),
            Spell::HostCut(who) => write!(f, "host {who} is cut off"),
            Spell::MasterCut => f.write_str("the host that leads is cut off"),
            Spell::PairCut(one, other) => write!(f, "hosts {one} and {other} are cut apart"),
            Spell::Kafka => f.write_str("Kafka is gone"),
            Spell::Postgres => f.write_str("PostgreSQL is gone"),
            Spell::State => f.write_str("the state manager is gone"),
            Spell::DiskFull => f.write_str("the disk of snapshots is full"),
            Spell::FolderAway => f.write_str("the folder of snapshots is away"),
            Spell::Paused => f.write_str("the job is paused"),
        }
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Deed::Rescale(vertex, count) => write!(f, "{vertex} gets {count} instances"),
            Deed::Restart(who) => write!(f, "container {who} is started anew"),
            Deed::Upgrade => f.write_str("the program is followed by itself"),
            Deed::Damage(_) => f.write_str("the newest snapshot is damaged, and restored later"),
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

/// What the plan promises.
pub mod promises {
    use super::*;

    const ALL: Able = Able {
        cuts: true,
        fills: true,
        damages: true,
    };
    const NONE: Able = Able {
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
        // One on which tests may rely: it is never another for that seed, else what was written down could not be run again.
        let first: Vec<u64> = (0..3)
            .scan(Dice::of(7), |dice, _| Some(dice.roll()))
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
                let damaged = able.damages.then_some("the newest snapshot is damaged");
                let faults = [
                    "all workers are killed",
                    "Kafka is gone",
                    "the folder of snapshots is away",
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
                assert!(!matches!(step.fault, Fault::Deed(Deed::Damage(_))));
                let Fault::Spell { spell, .. } = step.fault else {
                    continue;
                };
                let is_possible = !matches!(
                    spell,
                    Spell::HostCut(_)
                        | Spell::MasterCut
                        | Spell::PairCut(..)
                        | Spell::State
                        | Spell::DiskFull
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
