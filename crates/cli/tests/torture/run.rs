//! One torture from its beginning to its verdict.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ardea_metastore::conformance::Skipped;

use crate::land::Land;
use crate::plan::{Able, Then, plan};
use crate::suffering::pass;
use crate::world::World;

/// How many faults a short torture has, and one that is not told how many.
const FEW: usize = 10;
const MANY: usize = 200;

/// After how many faults it is looked whether what has come out so far is right.
const LOOK_EVERY: usize = 10;

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    seed: u64,
    faults: usize,
    /// Hosts have networks of their own, where they can have.
    has_networks: bool,
    /// Snapshots are in a bucket.
    has_bucket: bool,
    /// Only say what would be done.
    only_plan: bool,
    /// Keep all files even if all is well.
    keeps: bool,
}

impl Wish {
    /// A short one, which needs no rights.
    pub fn short() -> Self {
        Wish {
            seed: some_seed(),
            faults: FEW,
            has_networks: false,
            has_bucket: false,
            only_plan: false,
            keeps: false,
        }
    }

    /// What the command line says; nothing, if it asks for no torture in particular.
    pub fn of_command_line() -> Result<Option<Self>, String> {
        let (mut wish, mut is_told) = (Wish::short(), false);
        (wish.faults, wish.has_networks) = (MANY, true);
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut number = || {
                let next = words.next().ok_or(format!("{word} wants a number"))?;
                next.parse().map_err(|_| format!("{next:?} is no number"))
            };
            match word.as_str() {
                "--seed" => wish.seed = number()?,
                "--faults" => wish.faults = usize::try_from(number()?).unwrap_or(usize::MAX),
                "--here" => wish.has_networks = false,
                "--bucket" => wish.has_bucket = true,
                "--plan" => wish.only_plan = true,
                "--keep" => wish.keeps = true,
                "--long" => {}
                // For the suite.
                _ => continue,
            }
            is_told = true;
        }
        Ok(is_told.then_some(wish))
    }

    /// How to have the same again.
    fn again(&self) -> String {
        let here = if self.has_networks { "" } else { " --here" };
        let bucket = if self.has_bucket { " --bucket" } else { "" };
        let (seed, faults) = (self.seed, self.faults);
        format!("make torture ARGS=\"--seed {seed} --faults {faults}{here}{bucket}\"")
    }
}

/// Another each time.
fn some_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().subsec_nanos().into()
}

/// Carries it out; whether all was well, or could not be tried, which is said.
pub fn run(wish: &Wish) -> bool {
    eprintln!("torture: again by {}", wish.again());
    if wish.only_plan {
        let able = Able {
            cuts: wish.has_networks,
            fills: !wish.has_bucket,
            damages: !wish.has_bucket,
        };
        let steps = plan(wish.seed, wish.faults, able);
        steps.iter().for_each(|step| println!("{}", step.fault));
        return true;
    }
    let place = tempfile::Builder::new().prefix("ardea-torture-").tempdir();
    let place = place.expect("a temporary folder");
    let began = Instant::now();
    let begun = catch_unwind(AssertUnwindSafe(|| begin(wish, place.path())));
    let is_well = match begun {
        Err(_) => false,
        Ok(Ok(mut world)) => {
            let story = || tell(wish, &mut world);
            let is_well = catch_unwind(AssertUnwindSafe(story)).is_ok();
            if !is_well {
                world.has_failed();
            }
            is_well
        }
        Ok(Err(Skipped(why))) => {
            eprintln!("SKIPPED the torture: {why}");
            return true;
        }
    };
    let took = began.elapsed().as_secs();
    let told = if is_well { "all is well" } else { "FAILED" };
    eprintln!("torture: {told} after {took} s");
    if !is_well || wish.keeps {
        eprintln!("torture: kept in {}", place.keep().display());
        eprintln!("torture: again by {}", wish.again());
    }
    is_well
}

/// With networks of their own for hosts, if they are wanted and can be had.
fn begin(wish: &Wish, folder: &Path) -> Result<World, Skipped> {
    let spaces = wish.has_networks.then(Land::spaces);
    let land = match spaces {
        Some(Ok(land)) => land,
        Some(Err(Skipped(why))) => {
            eprintln!("SKIPPED hosts that are cut off: {why}");
            Land::here()
        }
        None => Land::here(),
    };
    World::begin(wish.seed, land, folder, wish.has_bucket)
}

fn tell(wish: &Wish, world: &mut World) {
    let able = world.able();
    if !able.fills && !wish.has_bucket {
        eprintln!("SKIPPED full disks: no small one can be mounted");
    }
    let steps = plan(wish.seed, wish.faults, able);
    let began = Instant::now();
    for (number, step) in steps.iter().enumerate() {
        let (at, number) = (began.elapsed().as_secs(), number + 1);
        eprintln!(
            "torture: {at:>5} s  {number}/{}  {}",
            steps.len(),
            step.fault
        );
        world.suffers(step.fault);
        match step.then {
            Then::GoesOn(millis) => pass(millis),
            Then::Recovers => world.recovers(),
        }
        if number % LOOK_EVERY == 0 {
            world.is_right_so_far();
        }
    }
    world.end();
}
