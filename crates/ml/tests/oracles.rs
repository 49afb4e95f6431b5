//! Results beside plain loops, for any number of threads.

use ardea_core::ErrorCode;
use ardea_iteration::MemoryExchange;
use ardea_ml::{Examples, KMeans, LinearClassifier, LossFunction, Points, SeededRandom, StepSize};
use std::sync::Arc;
use std::thread;

const FEATURES: usize = 40;

/// Rows of a few features whose class depends on a random direction.
fn examples(rows: usize, is_sparse: bool, seed: u64) -> Examples {
    let mut random = SeededRandom::new(seed);
    let direction: Vec<f64> = (0..FEATURES).map(|_| random.unit() - 0.5).collect();
    let mut examples = match is_sparse {
        true => Examples::sparse(FEATURES),
        false => Examples::dense(FEATURES),
    };
    for _ in 0..rows {
        let row: Vec<f64> = (0..FEATURES)
            .map(|_| match random.below(5) {
                0 => random.unit() - 0.5,
                _ => 0.0,
            })
            .collect();
        let score: f64 = row.iter().zip(&direction).map(|(x, d)| x * d).sum();
        let label = score + 0.05 * (random.unit() - 0.5);
        examples.push_dense(label.signum(), &row).unwrap();
    }
    examples
}

/// Gradient descent as a plain loop over the same batches, in row order.
fn plain_loop(
    examples: &Examples,
    loss: LossFunction,
    (step, l1, l2): (f64, f64, f64),
    (batch, partitions, iterations): (usize, usize, usize),
) -> (Vec<f64>, f64) {
    let parts = examples.split(partitions, 7).unwrap();
    let (mut weights, mut bias) = (vec![0.0; FEATURES], 0.0);
    for iteration in 0..iterations {
        let (mut gradient, mut bias_gradient, mut rows) = (vec![0.0; FEATURES], 0.0, 0);
        for (number, part) in parts.partitions().iter().enumerate() {
            let share = batch * (number + 1) / partitions - batch * number / partitions;
            for position in iteration * share..(iteration + 1) * share {
                let row = position % part.len();
                let label = part.labels()[row];
                let margin = label * (part.dot(row, &weights) + bias);
                let factor = label * loss.slope(margin);
                part.visit(row, |index, x| gradient[index as usize] += factor * x);
                bias_gradient += factor;
                rows += 1;
            }
        }
        for (weight, sum) in weights.iter_mut().zip(gradient) {
            let moved = *weight - step * (sum / f64::from(rows) + l2 * *weight);
            *weight = moved.signum() * (moved.abs() - step * l1).max(0.0);
        }
        bias -= step * bias_gradient / f64::from(rows);
    }
    (weights, bias)
}

#[test]
fn gradient_descent_has_the_loss_of_a_plain_loop() {
    for is_sparse in [false, true] {
        for loss in [LossFunction::Logistic, LossFunction::Hinge] {
            let examples = examples(3000, is_sparse, 11);
            let (weights, bias) = plain_loop(&examples, loss, (0.8, 1e-4, 1e-3), (256, 8, 200));
            let classifier = match loss {
                LossFunction::Logistic => LinearClassifier::logistic_regression(),
                LossFunction::Hinge => LinearClassifier::svm(),
            };
            let classifier = classifier
                .step(StepSize::Constant(0.8))
                .l1(1e-4)
                .l2(1e-3)
                .batch(256)
                .partitions(8)
                .iterations(200)
                .seed(7);
            let models: Vec<_> = [1, 2, 4]
                .map(|threads| {
                    classifier
                        .clone()
                        .threads(threads)
                        .train(&examples)
                        .unwrap()
                        .model
                })
                .into();
            assert!(
                models.iter().all(|model| *model == models[0]),
                "threads have an effect"
            );
            let plain = ardea_ml::LinearModel {
                weights,
                bias,
                loss,
            };
            let (found, expected) = (&models[0], plain.evaluate(&examples).unwrap());
            let evaluation = found.evaluate(&examples).unwrap();
            let difference = (evaluation.loss - expected.loss).abs();
            assert!(difference < 1e-6, "{loss:?}: {evaluation:?} {expected:?}");
            assert!(evaluation.accuracy > 0.85, "{evaluation:?}");
        }
    }
}

#[test]
fn dense_and_sparse_updates_lead_to_the_same_model() {
    let examples = examples(2000, true, 5);
    let classifier = LinearClassifier::logistic_regression()
        .batch(200)
        .iterations(100);
    let sparse = classifier.clone().train(&examples).unwrap().model;
    let dense = classifier.dense_updates().train(&examples).unwrap().model;
    assert_eq!(sparse, dense);
}

#[test]
fn a_penalty_of_the_first_order_and_its_filter_make_a_sparse_model() {
    let examples = examples(4000, true, 3);
    let classifier = LinearClassifier::logistic_regression()
        .step(StepSize::Constant(2.0))
        .l1(4e-3)
        .iterations(400);
    let exact = classifier.clone().train(&examples).unwrap();
    let filtered = classifier.filtered_updates().train(&examples).unwrap();
    assert!(
        exact.model.non_zero() < FEATURES,
        "{}",
        exact.model.non_zero()
    );
    let difference = (exact.objective - filtered.objective).abs();
    assert!(
        difference < 1e-2,
        "{} {}",
        exact.objective,
        filtered.objective
    );
}

#[test]
fn processes_train_the_same_model_and_send_fewer_bytes_for_sparse_updates() {
    let train = |is_sparse: bool| {
        let parties: Vec<_> = MemoryExchange::mesh(3)
            .into_iter()
            .map(|exchange| {
                thread::spawn(move || {
                    let mut wide = Examples::sparse(10_000);
                    let mut random = SeededRandom::new(2);
                    for _ in 0..600 {
                        let mut row: Vec<u32> =
                            (0..20).map(|_| random.below(10_000) as u32).collect();
                        row.sort_unstable();
                        row.dedup();
                        let row: Vec<_> = row.into_iter().map(|index| (index, 0.2)).collect();
                        let label = if row[0].0.is_multiple_of(2) {
                            1.0
                        } else {
                            -1.0
                        };
                        wide.push_sparse(label, &row).unwrap();
                    }
                    let classifier = LinearClassifier::svm().batch(32).iterations(50);
                    let classifier = match is_sparse {
                        true => classifier,
                        false => classifier.dense_updates(),
                    };
                    classifier
                        .exchange(Arc::new(exchange))
                        .train(&wide)
                        .unwrap()
                })
            })
            .collect();
        let trained = parties.into_iter().map(|party| party.join().unwrap());
        let trained: Vec<_> = trained.collect();
        let bytes: u64 = trained
            .iter()
            .map(|t| t.report.counters().exchanged_bytes)
            .sum();
        assert!(trained.iter().all(|other| other.model == trained[0].model));
        (trained[0].model.clone(), bytes)
    };
    let ((sparse, few), (dense, many)) = (train(true), train(false));
    assert_eq!(sparse, dense);
    assert!(few * 5 < many, "{few} bytes against {many}");
}

#[test]
fn a_step_that_is_too_long_ends_the_training_with_its_place() {
    let mut large = Examples::dense(2);
    for n in 0..100 {
        let x = f64::from(n) * 1e3;
        large
            .push_dense(if n % 3 == 0 { 1.0 } else { -1.0 }, &[x, -x])
            .unwrap();
    }
    let classifier = LinearClassifier::logistic_regression().step(StepSize::Constant(1e6));
    let error = classifier.train(&large).unwrap_err();
    assert_eq!(error.code(), ErrorCode::UserError);
    assert!(
        error
            .to_string()
            .contains("the variable \"model\" is invalid after iteration"),
        "{error}"
    );
}

#[test]
fn invalid_settings_are_refused() {
    let examples = examples(10, false, 1);
    let classifier = LinearClassifier::svm;
    for bad in [
        classifier().step(StepSize::Constant(0.0)),
        classifier().step(StepSize::Adaptive(f64::NAN)),
        classifier().l1(-1.0),
        classifier().l2(f64::INFINITY),
        classifier().batch(0),
        classifier().group(0),
        classifier().partitions(0),
        classifier().tolerance(-1.0),
        classifier().tolerance(f64::NAN),
    ] {
        let error = bad.train(&examples).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob, "{bad:?}");
    }
    let error = classifier().train(&Examples::dense(3)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
}

#[test]
fn k_means_has_the_centroids_of_a_plain_loop() {
    let mut random = SeededRandom::new(9);
    let mut points = Points::new(3).unwrap();
    for n in 0..900 {
        let center = f64::from(n % 4) * 2.0;
        let point: Vec<f64> = (0..3).map(|_| center + random.unit()).collect();
        points.push(&point).unwrap();
    }
    let trainer = KMeans::new(4).seed(5).tolerance(0.0).partitions(7);
    // The centroids after no iteration are the initial ones.
    let initial = trainer.clone().iterations(0).train(&points).unwrap();
    let mut centroids: Vec<Vec<f64>> = initial.centroids().map(<[f64]>::to_vec).collect();
    let distance =
        |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    for _ in 0..10 {
        let mut sums = vec![(vec![0.0; 3], 0.0); 4];
        for point in points.iter() {
            let nearest = (0..4)
                .min_by(|a, b| {
                    let to = |cluster: &usize| distance(&centroids[*cluster], point);
                    to(a).total_cmp(&to(b))
                })
                .unwrap();
            for (sum, number) in sums[nearest].0.iter_mut().zip(point) {
                *sum += number;
            }
            sums[nearest].1 += 1.0;
        }
        for (centroid, (sum, count)) in centroids.iter_mut().zip(sums) {
            *centroid = sum.iter().map(|sum| sum / count).collect();
        }
    }
    let models = [1, 2, 4].map(|threads| {
        let trainer = trainer.clone().threads(threads).iterations(10);
        trainer.train(&points).unwrap()
    });
    assert!(
        models.iter().all(|model| *model == models[0]),
        "threads have an effect"
    );
    for (found, expected) in models[0].centroids().zip(&centroids) {
        assert!(distance(found, expected) < 1e-18, "{found:?} {expected:?}");
    }
    let parties = MemoryExchange::mesh(2).into_iter().map(|exchange| {
        let trainer = trainer.clone().iterations(10).exchange(Arc::new(exchange));
        let points = points.clone();
        thread::spawn(move || trainer.train(&points).unwrap())
    });
    let parties: Vec<_> = parties.collect();
    for party in parties {
        assert_eq!(party.join().unwrap(), models[0]);
    }
    let settled = trainer.iterations(500).train(&points).unwrap();
    assert!(settled.iterations < 500);
}

#[test]
fn points_whose_distances_are_infinite_end_the_training() {
    let mut points = Points::new(1).unwrap();
    for number in [1e200, -1e200, 1.0, 2.0] {
        points.push(&[number]).unwrap();
    }
    let error = KMeans::new(2).partitions(1).train(&points).unwrap_err();
    assert_eq!(error.code(), ErrorCode::UserError, "{error}");
    assert!(error.to_string().contains("is inf"), "{error}");
}

#[test]
fn a_tolerance_that_is_no_distance_is_refused() {
    let mut points = Points::new(1).unwrap();
    for number in 0..8 {
        points.push(&[f64::from(number)]).unwrap();
    }
    for tolerance in [-1.0, f64::NAN, f64::INFINITY] {
        let trained = KMeans::new(2).tolerance(tolerance).train(&points);
        assert_eq!(trained.unwrap_err().code(), ErrorCode::InvalidJob);
    }
}

#[test]
fn batches_with_fewer_rows_than_partitions_use_all_rows() {
    // Each row has a feature of its own.
    let mut examples = Examples::sparse(64);
    for row in 0..64 {
        examples.push_sparse(1.0, &[(row, 1.0)]).unwrap();
    }
    let classifier = LinearClassifier::logistic_regression();
    let classifier = classifier.batch(3).partitions(16).iterations(22);
    let model = classifier.train(&examples).unwrap().model;
    assert_eq!(model.non_zero(), 64);
}

#[test]
fn points_of_another_dimension_are_refused() {
    let mut points = Points::new(2).unwrap();
    points.push(&[1.0, 2.0]).unwrap();
    let error = points.push(&[1.0]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("point 1 has 1 numbers instead of 2"),
        "{error}"
    );
    assert!(points.push(&[1.0, f64::NAN]).is_err());
    assert!(KMeans::new(2).train(&points).is_err());
}
