//! The conformance suite: the contract of schedulers as tests that every scheduler passes.
//!
//! An implementation provides a test environment in one of its test files, and lists the suite
//! there:
//!
//! ```text
//! fn stage() -> Result<TestEnvironment, Skipped> { … }
//! ardea_scheduler::conformance_suite!(stage);
//! ```
//!
//! Each guarantee is a separate test with its own environment. The containers run the test's own
//! program, which connects to the test, executes the test's commands ([`TestContainers`]), and ends
//! with the test. If the scheduler is unavailable, a test prints `SKIPPED` and the reason. With
//! `ARDEA_SERVICES_REQUIRED=1` it fails instead.

#[allow(missing_docs, reason = "the name of a case describes its guarantee")]
mod containers;
mod fixture;
#[allow(missing_docs, reason = "the name of a case describes its guarantee")]
mod orders;
mod test_containers;

pub use fixture::Fixture;
pub use test_containers::{TestContainer, TestContainers, run_container};

#[doc(hidden)]
pub mod cases {
    //! The guarantees, one function each.
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

/// The environment variable for required services. If it is `1`, tests fail instead of being
/// skipped when a scheduler is unavailable.
const REQUIRED: &str = "ARDEA_SERVICES_REQUIRED";

/// The timeout of a test case; no case needs nearly as long.
const CASE_DEADLINE: Duration = Duration::from_secs(180);

/// The timeout of one wait.
const DEADLINE: Duration = Duration::from_secs(60);

/// The reason why a test can't be run on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skipped(pub String);

/// A function that creates a kind of scheduler, as another process of the same cluster would.
pub type Open = Box<dyn Fn() -> Pending<'static, Arc<dyn SchedulerKind>> + Send + Sync>;

/// The environment in which a scheduler is tested.
pub struct TestEnvironment {
    /// Creates the kind of scheduler.
    pub open: Open,
    /// Resources that live until the test ends, such as a server or a folder.
    pub kept: Box<dyn Any + Send>,
}

impl fmt::Debug for TestEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestEnvironment").finish_non_exhaustive()
    }
}

/// A folder with the unpacked package of this test's program.
#[derive(Debug)]
pub struct TestPackage(PathBuf);

impl TestPackage {
    /// The name of the program in the package.
    pub const EXECUTABLE: &'static str = "program";

    /// Creates the package in `folder`.
    ///
    /// # Panics
    ///
    /// If the package can't be created.
    pub fn packed_in(folder: &Path) -> Self {
        let package = folder.join("package");
        let program = std::env::current_exe().expect("this program");
        std::fs::create_dir_all(&package).expect("a folder");
        // Another test may have created it already.
        let _ = std::os::unix::fs::symlink(program, package.join(Self::EXECUTABLE));
        TestPackage(package)
    }
}

impl Programs for TestPackage {
    fn unpacked<'a>(&'a self, _: &'a ProgramRef, _: &'a str) -> Pending<'a, Unpacked> {
        Box::pin(async { Ok(Unpacked::new(&self.0)) })
    }
}

/// A test case.
#[doc(hidden)]
pub type Case = for<'a> fn(&'a mut Fixture) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs one test of the suite.
///
/// # Panics
///
/// If the scheduler does not fulfil the guarantee.
#[doc(hidden)]
pub fn run(name: &str, stage: fn() -> Result<TestEnvironment, Skipped>, case: Case) {
    let stage = match stage() {
        Ok(stage) => stage,
        Err(why) if std::env::var_os(REQUIRED).is_some_and(|value| value == "1") => {
            panic!("{name}: {}", why.0)
        }
        Err(why) => {
            // The test harness captures the output of `eprintln!`.
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
        let mut play = Fixture::new(stage).await;
        let ended = tokio::time::timeout(CASE_DEADLINE, case(&mut play)).await;
        play.end().await;
        ended
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    assert!(ended.is_ok(), "{name} took longer than {CASE_DEADLINE:?}");
}

/// Waits until the condition `holds` is true, at most [`DEADLINE`].
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

/// Waits for a future, with the timeout [`DEADLINE`].
async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, coming).await {
        Ok(come) => come,
        Err(_) => panic!("not in {DEADLINE:?}: {what}"),
    }
}

/// Lists the suite as tests of a crate; takes the function that creates a [`TestEnvironment`].
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

        /// Not a guarantee: the program of the suite's containers.
        #[test]
        fn a_container_of_the_suite() {
            $crate::conformance::run_container();
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
