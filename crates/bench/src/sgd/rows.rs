//! Generated rows in the shape of a text collection: few features a row, some of them frequent.

use ardea_core::Result;
use ardea_ml::{Examples, SeededRandom};

use super::SgdParams;

/// The share of rows with a random label.
const NOISE: f64 = 0.03;

/// The share of features that labels depend on: most words of a language say nothing of a topic.
const INFORMATIVE: f64 = 0.1;

/// Returns rows of unit length. Their labels depend on random weights of a few features.
pub(super) fn generate(params: &SgdParams) -> Result<Examples> {
    let mut random = SeededRandom::new(params.seed);
    let weights: Vec<f64> = (0..params.features)
        .map(|_| match random.unit() < INFORMATIVE {
            true => random.unit() - 0.5,
            false => 0.0,
        })
        .collect();
    let mean = (params.density * params.features as f64).max(1.0);
    let mut examples = Examples::sparse(params.features);
    let mut row: Vec<(u32, f64)> = Vec::new();
    for _ in 0..params.rows {
        row.clear();
        // From half to one and a half of the mean.
        let count = (mean * (0.5 + random.unit())).round().max(1.0) as usize;
        for _ in 0..count.min(params.features) {
            // Low indices are frequent, as are some words of a language.
            let skewed = random.unit() * random.unit();
            let index = (skewed * params.features as f64) as u32;
            row.push((index, 0.2 + random.unit()));
        }
        row.sort_unstable_by_key(|(index, _)| *index);
        row.dedup_by_key(|(index, _)| *index);
        let length = row
            .iter()
            .map(|(_, number)| number * number)
            .sum::<f64>()
            .sqrt();
        let mut score = 0.0;
        for (index, number) in &mut row {
            *number /= length;
            score += *number * weights[*index as usize];
        }
        let is_positive = match random.unit() < NOISE {
            true => random.next_u64().is_multiple_of(2),
            false => score > 0.0,
        };
        examples.push_sparse(if is_positive { 1.0 } else { -1.0 }, &row)?;
    }
    Ok(examples)
}
