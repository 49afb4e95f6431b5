//! Tests that the records of every query can be sent between processes of a cluster.

use std::time::Duration;

use ardea_core::Routing;
use ardea_engine::{Job, Parallelisms};
use ardea_nexmark::queries::{Query, QueryRun, build};

#[test]
fn every_query_can_be_spread_over_processes() {
    let directory = tempfile::tempdir().unwrap();
    let side = directory.path().join("side.csv");
    std::fs::write(&side, "1,one\n").unwrap();
    for query in Query::ALL {
        let run = QueryRun {
            query,
            input: directory.path().join("events.jsonl"),
            output: directory.path().join("results.jsonl"),
            window: None,
            slide: None,
            side: Some(side.clone()),
            out_of_order: Some(Duration::from_secs(1)),
        };
        let program = build(&run).unwrap().program(&Parallelisms::new()).unwrap();
        for edge in program.dag.edges() {
            let stays = matches!(edge.wanted_routing(), Routing::Forward);
            assert!(
                stays || edge.wanted_codec().is_some(),
                "{}: {edge:?}",
                query.name()
            );
        }
    }
}
