//! What every scheduler promises, as tests: one suite, which passes on all of them.
//!
//! An implementation says in one file of its tests where it can be tried, and lists the suite:
//!
//! ```text
//! fn stage() -> Result<Stage, Skipped> { … }
//! ardea_scheduler::conformance_suite!(stage);
//! ```
//!
//! Each promise is a test of its own, on a stage of its own. The containers run the test's own program, which calls the test
//! when it is there and does what it is told ([`Crew`]); it ends with the test, whatever ends that. Where a scheduler can't be had
//! a test says `SKIPPED`, and why; with `ARDEA_SERVICES_REQUIRED=1` it fails.

#[allow(missing_docs, reason = "the name of a promise is what it promises")]
mod containers;
mod crew;
#[allow(missing_docs, reason = "the name of a promise is what it promises")]
mod orders;
mod play;

pub use crew::{Crew, Member, act};
pub use play::Play;

#[doc(hidden)]
pub mod cases {
    //! The promises, one function each.
    pub use super::containers::*;
    pub use super::orders::*;
}

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ardea_coordination::control::ProgramRef;

use crate::{Pending, Programs, SchedulerKind, Unpacked};

/// Set to `1`, a scheduler that can't be had fails the tests instead of skipping them.
const REQUIRED: &str = "ARDEA_SERVICES_REQUIRED";

/// The longest that a promise may take to be tried; far more than any needs.
const CASE_DEADLINE: Duration = Duration::from_secs(180);

/// The longest that something is waited for.
const DEADLINE: Duration = Duration::from_secs(60);

/// A test can't be run on this machine, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skipped(pub String);

/// Makes a kind of scheduler, as another process would that is started for the same cluster.
pub type Open = Box<dyn Fn() -> Pending<'static, Arc<dyn SchedulerKind>> + Send + Sync>;

/// Where a scheduler is tried.
pub struct Stage {
    /// Makes its kind.
    pub open: Open,
    /// What has to be kept until the test is over, such as a server or a folder.
    pub kept: Box<dyn Any + Send>,
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage").finish_non_exhaustive()
    }
}

/// A package with this test's program in it, in a folder.
#[derive(Debug)]
pub struct ThisTest(PathBuf);

impl ThisTest {
    /// The name of the program in the package.
    pub const EXECUTABLE: &'static str = "program";

    /// Makes the package in this folder.
    ///
    /// # Panics
    ///
    /// If it can't be made.
    pub fn packed_in(folder: &Path) -> Self {
        let package = folder.join("package");
        let program = std::env::current_exe().expect("this program");
        std::fs::create_dir_all(&package).expect("a folder");
        // Somebody may have made it already.
        let _ = std::os::unix::fs::symlink(program, package.join(Self::EXECUTABLE));
        ThisTest(package)
    }
}

impl Programs for ThisTest {
    fn unpacked<'a>(&'a self, _: &'a ProgramRef, _: &'a str) -> Pending<'a, Unpacked> {
        Box::pin(async { Ok(Unpacked::new(&self.0)) })
    }
}

/// A promise, tried.
#[doc(hidden)]
pub type Case = for<'a> fn(&'a mut Play) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs one test of the suite.
///
/// # Panics
///
/// If the promise is not kept.
#[doc(hidden)]
pub fn run(name: &str, stage: fn() -> Result<Stage, Skipped>, case: Case) {
    let stage = match stage() {
        Ok(stage) => stage,
        Err(why) if std::env::var_os(REQUIRED).is_some_and(|value| value == "1") => {
            panic!("{name}: {}", why.0)
        }
        Err(why) => {
            // What `eprintln!` writes is kept back by the test harness.
            let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {}", why.0);
            return;
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let ended = runtime.block_on(async {
        let mut play = Play::new(stage).await;
        let ended = tokio::time::timeout(CASE_DEADLINE, case(&mut play)).await;
        play.end().await;
        ended
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    assert!(ended.is_ok(), "{name} took longer than {CASE_DEADLINE:?}");
}

/// Waits until something holds.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let looking = async {
        let mut looks = tokio::time::interval(Duration::from_millis(20));
        loop {
            looks.tick().await;
            if holds().await {
                return;
            }
        }
    };
    soon(what, looking).await;
}

/// Waits for something.
async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, coming).await {
        Ok(come) => come,
        Err(_) => panic!("not in {DEADLINE:?}: {what}"),
    }
}

/// Lists the suite as tests of a crate; takes the function that makes a [`Stage`].
#[macro_export]
macro_rules! conformance_suite {
    ($stage:path) => {
        $crate::conformance_suite!(@cases $stage:
            containers_start_and_are_told_who_they_are
            an_update_starts_what_is_missing_stops_the_rest_and_leaves_the_others
            a_restart_replaces_the_process_by_a_later_life
            an_end_is_told_with_its_code_and_last_words
            a_killed_process_is_told_with_its_signal
            an_ended_container_is_started_again_by_whose_task_that_is
            what_a_container_wrote_can_be_read
            nothing_is_left_after_a_kill
            a_repeated_call_does_nothing_twice
            what_was_overtaken_is_not_carried_out
            a_scheduler_made_anew_finds_everything
            a_scheduler_made_anew_refuses_what_was_overtaken_before
            two_jobs_do_not_touch_each_other
        );

        /// Not a promise: what the containers of the suite run.
        #[test]
        fn a_container_of_the_suite() {
            $crate::conformance::act();
        }
    };
    (@cases $stage:path: $($case:ident)*) => {$(
        #[test]
        fn $case() {
            let case: $crate::conformance::Case = |play| Box::pin($crate::conformance::cases::$case(play));
            $crate::conformance::run(stringify!($case), $stage, case);
        }
    )*};
}
