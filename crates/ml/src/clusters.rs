//! The centroids of clusters as a shared variable: tasks commit sums of points.

use ardea_iteration::{Merge, SharedVariable, VariableFault};
use serde::{Deserialize, Serialize};

/// The sums of the points of each cluster.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct ClusterSums {
    pub(crate) sums: Vec<f64>,
    pub(crate) counts: Vec<u64>,
    pub(crate) inertia: f64,
}

impl Merge for ClusterSums {
    fn merge(&mut self, other: Self) {
        for (sum, number) in self.sums.iter_mut().zip(other.sums) {
            *sum += number;
        }
        for (sum, number) in self.counts.iter_mut().zip(other.counts) {
            *sum += number;
        }
        self.inertia += other.inertia;
    }

    fn fault(&self) -> Option<VariableFault> {
        VariableFault::in_numbers(&self.sums).or_else(|| VariableFault::in_number(self.inertia))
    }
}

/// The centroids of all clusters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Centroids {
    pub(crate) dimension: usize,
    pub(crate) numbers: Vec<f64>,
    /// The sum of squared distances to the centroids before the last step.
    pub(crate) inertia: f64,
    /// The greatest squared distance that a centroid moved in the last step.
    pub(crate) moved: f64,
}

impl Centroids {
    /// Returns the nearest centroid, and the squared distance to it. The first one wins a tie.
    #[inline]
    pub(crate) fn nearest(&self, point: &[f64]) -> (usize, f64) {
        let mut nearest = (0, f64::INFINITY);
        for (cluster, centroid) in self.numbers.chunks_exact(self.dimension).enumerate() {
            let distance = squared_distance(centroid, point);
            if distance < nearest.1 {
                nearest = (cluster, distance);
            }
        }
        nearest
    }
}

#[inline]
pub(crate) fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

impl SharedVariable for Centroids {
    type Update = ClusterSums;

    fn apply(&mut self, update: ClusterSums) {
        self.moved = 0.0;
        self.inertia = update.inertia;
        let clusters = self.numbers.chunks_exact_mut(self.dimension);
        let sums = update.sums.chunks_exact(self.dimension);
        for ((centroid, sum), count) in clusters.zip(sums).zip(update.counts) {
            // A cluster without points keeps its centroid.
            if count == 0 {
                continue;
            }
            let mut distance = 0.0;
            for (number, sum) in centroid.iter_mut().zip(sum) {
                let mean = sum / count as f64;
                distance += (mean - *number) * (mean - *number);
                *number = mean;
            }
            self.moved = self.moved.max(distance);
        }
    }

    fn fault_of(&self, update: &ClusterSums) -> Option<VariableFault> {
        if update.sums.len() != self.numbers.len() {
            return Some(VariableFault::WrongSize {
                expected: self.numbers.len(),
                found: update.sums.len(),
            });
        }
        update.fault()
    }

    fn fault(&self) -> Option<VariableFault> {
        VariableFault::in_numbers(&self.numbers)
            .or_else(|| VariableFault::in_number(self.inertia))
            .or_else(|| VariableFault::in_number(self.moved))
    }
}
