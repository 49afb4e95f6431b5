//! A test suite for packing policies, which every policy must pass.
//!
//! The tests of a user's policy include the suite as follows:
//!
//! ```text
//! ardea_coordination::conformance_suite!(ByRack::new());
//! ```
//!
//! Each property is a separate test on random jobs. A failure shows the smallest job found that
//! violates the property. The policy must be able to pack any job whose instances each fit into a
//! container.

#[allow(missing_docs, reason = "the name of a promise is what it promises")]
#[doc(hidden)]
pub mod cases;

use std::num::NonZeroU32;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::packing::{
    ContainerLimits, JobDemand, MilliCores, PackingConfig, PackingPolicy, Padding, Resources,
    VertexDemand,
};

/// The number of random jobs per property.
const JOBS: u32 = 200;

/// The maximum number of vertices of a random job.
const MOST_VERTICES: usize = 7;

/// Returns a strategy for jobs of up to seven vertices with up to 29 instances each.
pub fn demands() -> impl Strategy<Value = JobDemand> {
    let vertex = (1..30_u32, resources(0..50));
    prop::collection::vec(vertex, 1..=MOST_VERTICES).prop_map(|vertices| {
        let vertices = vertices.into_iter().enumerate();
        vertices.fold(
            JobDemand::new("random"),
            |demand, (at, (parallelism, each))| {
                let name = format!("v{at}");
                demand.vertex(VertexDemand::new(name.as_str(), parallelism, each))
            },
        )
    })
}

/// Returns a strategy for containers that hold any one instance of [`demands`], including padding.
pub fn configs() -> impl Strategy<Value = PackingConfig> {
    let most = prop::option::of(1..12_u32);
    let padding = (0..10_u64, 0..50_u32);
    (resources(80..400), most, padding).prop_map(|(size, most, (absolute, percent))| {
        let absolute = Resources {
            cpu: MilliCores(absolute),
            memory_bytes: absolute,
            disk_bytes: absolute,
        };
        PackingConfig {
            limits: ContainerLimits {
                resources: size,
                instances: most.and_then(NonZeroU32::new),
            },
            padding: Padding { absolute, percent },
            ..PackingConfig::default()
        }
    })
}

fn resources(range: std::ops::Range<u64>) -> impl Strategy<Value = Resources> {
    let each = || range.clone();
    (each(), each(), each()).prop_map(|(cpu, memory_bytes, disk_bytes)| Resources {
        cpu: MilliCores(cpu),
        memory_bytes,
        disk_bytes,
    })
}

/// A function that checks a property of a policy on one job, and panics if it is violated. The
/// `u32` slice has an arbitrary number for each vertex.
#[doc(hidden)]
pub type Case = fn(&dyn PackingPolicy, &JobDemand, &PackingConfig, &[u32]);

/// Checks one property of `policy` on random jobs.
///
/// # Panics
///
/// If the property is violated.
#[doc(hidden)]
pub fn run(policy: &dyn PackingPolicy, case: Case) {
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(JOBS)
    };
    let numbers = prop::collection::vec(0..20_u32, MOST_VERTICES);
    let outcome = TestRunner::new(config).run(
        &(demands(), configs(), numbers),
        |(job, config, numbers)| {
            case(policy, &job, &config, &numbers);
            Ok(())
        },
    );
    if let Err(broken) = outcome {
        panic!("{broken}");
    }
}

/// Declares the suite as tests; takes an expression that creates the policy.
#[macro_export]
macro_rules! conformance_suite {
    ($policy:expr) => {
        $crate::conformance_suite!(@cases $policy =>
            every_instance_is_placed_once_and_no_container_is_over_its_limit
            the_same_question_has_the_same_answer
            growing_moves_nothing
            shrinking_stops_the_highest_indices_and_moves_nothing
            where_nothing_has_changed_nothing_changes
            spread_over_a_number_of_containers_it_is_in_as_many_or_refused
            what_fits_into_no_container_is_refused_with_the_numbers
        );
    };
    (@cases $policy:expr => $($case:ident)*) => {$(
        #[test]
        fn $case() {
            $crate::packing::conformance::run(&$policy, $crate::packing::conformance::cases::$case);
        }
    )*};
}
