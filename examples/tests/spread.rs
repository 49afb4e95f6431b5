//! All jobs on a cluster: whatever goes from one instance to another can go to another process.

use ardea::core::Routing;
use ardea::engine::{Job, Parallelisms};
use ardea_examples::jobs;

#[test]
fn every_job_can_be_spread_over_processes() {
    for job in jobs() {
        let needs_file = !["flights", "sensors", "payments"].contains(&job.name);
        let args = if needs_file {
            vec!["file".to_string()]
        } else {
            vec![]
        };
        let program = (job.build)(&args)
            .unwrap()
            .program(&Parallelisms::new())
            .unwrap();
        for edge in program.dag.edges() {
            let stays = matches!(edge.wanted_routing(), Routing::Forward);
            assert!(
                stays || edge.wanted_codec().is_some(),
                "{}: {edge:?}",
                job.name
            );
        }
    }
}
