//! Tests of a model that one branch of a stream trains and another one uses.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use ardea::prelude::*;
use ardea_demo::Data;
use ardea_examples::delay_model::{Prediction, build, departures, predict};

/// The number of predictions that the test waits for.
const PREDICTIONS: usize = 200_000;

#[test]
fn predictions_improve_while_the_other_branch_learns() {
    let predictions = Arc::new(Mutex::new(Vec::new()));
    let p = Pipeline::new("delays");
    let seen = Arc::clone(&predictions);
    predict(p.read_from(departures(&Data::embedded(), 100_000).unwrap())).write_to(
        for_each::for_each(move |prediction: Prediction| seen.lock().unwrap().push(prediction)),
    );
    let node = Node::start(NodeConfig::with_threads(2)).unwrap();
    let job = p.submit(&node, JobConfig::default()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while predictions.lock().unwrap().len() < PREDICTIONS && Instant::now() < deadline {
        assert!(!job.wait(Duration::from_millis(5)).is_over());
    }
    job.drain();
    job.join().unwrap();
    let predictions = predictions.lock().unwrap();
    let (ignorant, trained): (Vec<_>, Vec<_>) = predictions.iter().partition(|p| p.learned == 0);
    assert!(trained.iter().any(|p| p.learned > 10_000), "models arrive");
    assert!(ignorant.iter().all(|p| p.probability == 0.5));
    let experienced = predictions.iter().filter(|p| p.learned > 50_000);
    let losses: Vec<f64> = experienced.map(Prediction::loss).collect();
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    assert!(
        mean < 0.6,
        "{mean} of {} predictions is not below ln 2",
        losses.len()
    );
}

#[test]
fn wrong_arguments_are_refused() {
    for arguments in [&["fast"][..], &["0"], &["1", "2"]] {
        let arguments: Vec<String> = arguments.iter().map(|a| a.to_string()).collect();
        let error = build(&arguments).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
    }
}
