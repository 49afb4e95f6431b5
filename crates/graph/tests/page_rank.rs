//! PageRank beside a plain loop, for any number of threads.

use std::sync::Arc;
use std::thread;

use ardea_core::ErrorCode;
use ardea_graph::{DirectedGraph, PageRank};
use ardea_iteration::MemoryExchange;

/// Edges that prefer low numbers; every seventh vertex has none.
fn edges(vertices: u32) -> Vec<(u32, u32)> {
    let mut state = 1_u64;
    let mut below = |bound: u32| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((state >> 33) % u64::from(bound)) as u32
    };
    let mut edges = Vec::new();
    for from in (0..vertices).filter(|vertex| vertex % 7 != 3) {
        for _ in 0..1 + below(8) {
            let highest = below(vertices) + 1;
            edges.push((from, below(highest)));
        }
    }
    edges
}

fn plain_loop(vertices: u32, edges: &[(u32, u32)], iterations: usize) -> Vec<f64> {
    let count = vertices as usize;
    let mut degrees = vec![0.0; count];
    for (from, _) in edges {
        degrees[*from as usize] += 1.0;
    }
    let mut ranks = vec![1.0 / count as f64; count];
    for _ in 0..iterations {
        let mut next = vec![0.0; count];
        for (from, to) in edges {
            next[*to as usize] += ranks[*from as usize] / degrees[*from as usize];
        }
        let spread: f64 = (0..count)
            .filter(|v| degrees[*v] == 0.0)
            .map(|v| ranks[v])
            .sum();
        for rank in &mut next {
            *rank = 0.85 * *rank + (0.15 + 0.85 * spread) / count as f64;
        }
        ranks = next;
    }
    ranks
}

#[test]
fn ranks_are_those_of_a_plain_loop() {
    let edges = edges(2000);
    let graph = DirectedGraph::from_edges(2000, edges.iter().copied()).unwrap();
    let expected = plain_loop(2000, &edges, 30);
    let ranker = PageRank::new().tolerance(0.0).iterations(30).partitions(11);
    let results = [1, 2, 4].map(|threads| ranker.clone().threads(threads).run(&graph).unwrap());
    assert!(
        results.iter().all(|result| *result == results[0]),
        "threads have an effect"
    );
    let worst = results[0]
        .ranks
        .iter()
        .zip(&expected)
        .map(|(a, b)| (a - b).abs());
    assert!(worst.fold(0.0, f64::max) < 1e-12);
    let sum: f64 = results[0].ranks.iter().sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    let settled = PageRank::new().iterations(1000).run(&graph).unwrap();
    assert!(
        settled.iterations < 200 && settled.change < 1e-9,
        "{}",
        settled.iterations
    );
}

#[test]
fn processes_compute_the_same_ranks() {
    let graph = Arc::new(DirectedGraph::from_edges(500, edges(500)).unwrap());
    let alone = PageRank::new().run(&graph).unwrap();
    let parties: Vec<_> = MemoryExchange::mesh(3)
        .into_iter()
        .map(|exchange| {
            let graph = Arc::clone(&graph);
            thread::spawn(move || PageRank::new().exchange(Arc::new(exchange)).run(&graph))
        })
        .collect();
    for party in parties {
        assert_eq!(party.join().unwrap().unwrap(), alone);
    }
}

#[test]
fn invalid_settings_are_refused() {
    let graph = DirectedGraph::from_edges(2, [(0, 1)]).unwrap();
    let empty = DirectedGraph::from_edges(0, []).unwrap();
    for error in [
        PageRank::new().run(&empty).unwrap_err(),
        PageRank::new().damping(1.0).run(&graph).unwrap_err(),
        PageRank::new().damping(f64::NAN).run(&graph).unwrap_err(),
        PageRank::new().group(0).run(&graph).unwrap_err(),
        PageRank::new().partitions(0).run(&graph).unwrap_err(),
        PageRank::new()
            .partitions(usize::MAX)
            .run(&graph)
            .unwrap_err(),
        PageRank::new().tolerance(-1.0).run(&graph).unwrap_err(),
        PageRank::new().tolerance(f64::NAN).run(&graph).unwrap_err(),
    ] {
        assert_eq!(error.code(), ErrorCode::InvalidJob);
    }
}
