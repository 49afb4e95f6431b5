//! A conformance test suite for all implementations of the metadata store.
//!
//! An implementation defines in a test file how the store is started, and lists the suite with
//! [`conformance_suite!`](crate::conformance_suite):
//!
//! ```text
//! fn plan() -> Plan { Plan::Server { script: "etcd.sh", connect } }
//! ardea_metastore::conformance_suite!(plan, with faults);
//! ```
//!
//! Each case is a separate test with a separate root. Cases that break nothing share a server;
//! cases that kill the server or break its connections have a server each. If no server is
//! available, a test prints `SKIPPED` and the reason.

#[allow(missing_docs, reason = "the name of a promise is what it promises")]
mod breaking;
mod faulty;
mod proxy;
mod server;
#[allow(missing_docs, reason = "the name of a promise is what it promises")]
mod sessions;
mod site;
#[allow(missing_docs, reason = "the name of a promise is what it promises")]
mod tree;
#[allow(missing_docs, reason = "the name of a promise is what it promises")]
mod watching;

pub use faulty::{Fault, FaultyStore};
pub use proxy::Proxy;
pub use server::{Server, Skipped};
pub use site::{Connect, Plan, ServerRequirement, Site, run_holder};

#[doc(hidden)]
pub mod cases {
    //! The cases, one function each.
    pub use super::breaking::*;
    pub use super::sessions::*;
    pub use super::tree::*;
    pub use super::watching::*;
}

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// A test case.
#[doc(hidden)]
pub type Case = for<'a> fn(&'a Site) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Timeout of a case; far more than any needs.
const CASE_DEADLINE: Duration = Duration::from_secs(180);

/// Timeout of a single condition.
const DEADLINE: Duration = Duration::from_secs(30);

/// Runs one test of the suite.
///
/// # Panics
///
/// If the case fails.
#[doc(hidden)]
pub fn run(name: &str, plan: Plan, need: ServerRequirement, case: Case) {
    let site = match Site::of(plan, need) {
        Ok(site) => site,
        Err(why) => return server::report_skipped(name, &why),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let ended = runtime.block_on(async { tokio::time::timeout(CASE_DEADLINE, case(&site)).await });
    runtime.shutdown_timeout(Duration::from_secs(5));
    assert!(ended.is_ok(), "{name} took longer than {CASE_DEADLINE:?}");
}

/// Waits until a condition holds.
///
/// # Panics
///
/// If it does not hold within half a minute.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    loop {
        looks.tick().await;
        if holds().await {
            return;
        }
        assert!(Instant::now() < deadline, "not in {DEADLINE:?}: {what}");
    }
}

/// Waits for a future.
///
/// # Panics
///
/// If it does not complete within half a minute.
async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, coming).await {
        Ok(come) => come,
        Err(_) => panic!("not in {DEADLINE:?}: {what}"),
    }
}

/// Lists the suite as tests of a crate; takes the function that returns the [`Plan`]. `with faults`
/// adds the cases with server crashes and broken connections, which need a store with a server.
#[macro_export]
macro_rules! conformance_suite {
    ($plan:path, with faults) => {
        $crate::conformance_suite!($plan);
        $crate::conformance_suite!(@faults $plan);
    };
    ($plan:path) => {
        $crate::conformance_suite!(@shared $plan:
            a_node_is_read_as_it_was_set
            an_absent_node_is_made_by_exactly_one_of_many
            a_conditional_set_needs_the_present_version
            a_set_without_condition_makes_and_overwrites
            missing_ancestors_are_made_without_a_value
            a_node_with_children_is_not_deleted
            a_conditional_delete_needs_the_present_version
            a_change_of_what_is_damaged_spares_what_is_whole
            versions_grow_and_never_come_back
            a_stale_version_never_matches_a_reborn_node
            children_are_direct_and_sorted
            two_roots_side_by_side_do_not_see_each_other
            a_hundred_tasks_count_to_the_right_sum
            what_the_tree_does_not_allow_is_refused_and_changes_nothing
            a_dump_shows_the_tree
            the_present_state_comes_first
            birth_change_and_death_of_a_node_are_told
            births_and_deaths_of_children_are_told
            the_last_state_is_told_under_churn
            a_watcher_ends_with_its_metadata_store
            nodes_of_a_session_go_when_it_is_closed
            nodes_of_a_session_go_when_it_is_dropped
            nodes_of_a_session_go_when_its_process_is_killed
            a_node_of_a_session_can_be_written_and_stays_one
            a_node_of_a_session_has_no_children
            a_session_makes_no_node_that_is_there
            a_lease_passes_on_with_a_greater_token
            a_session_outlives_its_metadata_store
        );
        $crate::conformance_suite!(@alone $plan:
            an_expired_session_is_told_once_and_its_nodes_go
        );

        /// Not a test: the child process of the test that kills a process.
        #[test]
        fn held_by_another_process() {
            $crate::conformance::run_holder($plan());
        }
    };
    (@faults $plan:path) => {
        $crate::conformance_suite!(@alone $plan:
            a_killed_server_comes_back_with_everything
            a_cut_connection_is_made_again
            ten_seconds_of_stall_lose_nothing
            no_count_is_lost_when_connections_break
            a_server_that_is_away_is_not_waited_for_forever
        );
    };
    (@shared $plan:path: $($case:ident)*) => {$(
        #[test]
        fn $case() {
            let case: $crate::conformance::Case = |site| Box::pin($crate::conformance::cases::$case(site));
            $crate::conformance::run(stringify!($case), $plan(), $crate::conformance::ServerRequirement::Shared, case);
        }
    )*};
    (@alone $plan:path: $($case:ident)*) => {$(
        #[test]
        fn $case() {
            let case: $crate::conformance::Case = |site| Box::pin($crate::conformance::cases::$case(site));
            $crate::conformance::run(stringify!($case), $plan(), $crate::conformance::ServerRequirement::Alone, case);
        }
    )*};
}
