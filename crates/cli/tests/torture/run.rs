//! A complete torture run, from its start to its verdict.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ardea_metastore::conformance::Skipped;

use crate::environment::TestEnvironment;
use crate::faults::pass;
use crate::network::HostNetwork;
use crate::plan::{Capabilities, Then, plan};

/// The number of faults of a short run, and the default of others.
const FEW: usize = 10;
const MANY: usize = 200;

/// The number of faults after which the results so far are checked.
const LOOK_EVERY: usize = 10;

/// The options of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunOptions {
    seed: u64,
    faults: usize,
    /// True if hosts have their own networks, where possible.
    has_networks: bool,
    /// True if checkpoints are in a bucket.
    has_bucket: bool,
    /// True if the job runs in micro-batches.
    has_batches: bool,
    /// True if the plan is only printed.
    only_plan: bool,
    /// True if all files are retained even after a success.
    keeps: bool,
}

impl RunOptions {
    /// Returns the options of a short run, which needs no privileges.
    pub fn short() -> Self {
        RunOptions {
            seed: some_seed(),
            faults: FEW,
            has_networks: false,
            has_bucket: false,
            has_batches: false,
            only_plan: false,
            keeps: false,
        }
    }

    /// Returns the options of a short run in micro-batches.
    pub fn short_in_batches() -> Self {
        RunOptions {
            has_batches: true,
            ..RunOptions::short()
        }
    }

    /// Parses the command line; returns `None` if it has no options of a run.
    pub fn of_command_line() -> Result<Option<Self>, String> {
        let (mut wish, mut is_told) = (RunOptions::short(), false);
        (wish.faults, wish.has_networks) = (MANY, true);
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            if word == "--mode" {
                wish.has_batches = match words.next().as_deref() {
                    Some("micro-batch") => true,
                    Some("continuous") => false,
                    _ => return Err("--mode is continuous or micro-batch".into()),
                };
                is_told = true;
                continue;
            }
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
                // Options of the test suite.
                _ => continue,
            }
            is_told = true;
        }
        Ok(is_told.then_some(wish))
    }

    /// Returns the command that repeats the run.
    fn again(&self) -> String {
        let here = if self.has_networks { "" } else { " --here" };
        let bucket = if self.has_bucket { " --bucket" } else { "" };
        let mode = if self.has_batches {
            " --mode micro-batch"
        } else {
            ""
        };
        let (seed, faults) = (self.seed, self.faults);
        format!("make torture ARGS=\"--seed {seed} --faults {faults}{here}{bucket}{mode}\"")
    }
}

/// Returns a seed that differs each time.
fn some_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().subsec_nanos().into()
}

/// Performs the run. A run that was skipped is printed, and counts as a success.
///
/// # Errors
///
/// The reason of the failure, with the command that repeats the run.
pub fn run(wish: &RunOptions) -> Result<(), String> {
    eprintln!("torture: again by {}", wish.again());
    if wish.only_plan {
        let able = Capabilities {
            cuts: wish.has_networks,
            fills: !wish.has_bucket,
            damages: !wish.has_bucket,
        };
        let steps = plan(wish.seed, wish.faults, able);
        steps.iter().for_each(|step| println!("{}", step.fault));
        return Ok(());
    }
    let place = tempfile::Builder::new().prefix("ardea-torture-").tempdir();
    let place = place.expect("a temporary folder");
    let began = Instant::now();
    let begun = catch_unwind(AssertUnwindSafe(|| begin(wish, place.path())));
    let outcome = match begun {
        Err(panic) => Err(panic),
        Ok(Ok(mut world)) => {
            let story = || tell(wish, &mut world);
            let outcome = catch_unwind(AssertUnwindSafe(story));
            if outcome.is_err() {
                world.has_failed();
            }
            outcome
        }
        Ok(Err(Skipped(why))) => {
            eprintln!("SKIPPED the torture: {why}");
            return Ok(());
        }
    };
    let took = began.elapsed().as_secs();
    let told = if outcome.is_ok() {
        "all is well"
    } else {
        "FAILED"
    };
    eprintln!("torture: {told} after {took} s");
    if outcome.is_err() || wish.keeps {
        eprintln!("torture: kept in {}", place.keep().display());
        eprintln!("torture: again by {}", wish.again());
    }
    outcome.map_err(|panic| format!("{}\nagain by {}", message_of(&*panic), wish.again()))
}

/// Returns the message of a panic.
fn message_of(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    let fixed = || panic.downcast_ref::<&str>().copied();
    owned.or_else(fixed).unwrap_or("a panic without a message")
}

/// Creates the test environment, with separate networks of hosts if requested and possible.
fn begin(wish: &RunOptions, folder: &Path) -> Result<TestEnvironment, Skipped> {
    let spaces = wish.has_networks.then(HostNetwork::spaces);
    let land = match spaces {
        Some(Ok(land)) => land,
        Some(Err(Skipped(why))) => {
            eprintln!("SKIPPED hosts that are cut off: {why}");
            HostNetwork::here()
        }
        None => HostNetwork::here(),
    };
    let modes = (wish.has_bucket, wish.has_batches);
    TestEnvironment::begin(wish.seed, land, folder, modes)
}

fn tell(wish: &RunOptions, world: &mut TestEnvironment) {
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
        world.execute(step.fault);
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
