//! Clusters of points by Lloyd's algorithm.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use ardea_iteration::{Dataset, Exchange, Iterate, Variables};

use crate::clusters::{Centroids, ClusterSums, squared_distance};
use crate::seeded_random::SeededRandom;

/// Points of the same dimension. All numbers are finite.
#[derive(Clone, PartialEq, Debug)]
pub struct Points {
    dimension: usize,
    numbers: Vec<f64>,
}

impl Points {
    /// Creates an empty list of points.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the dimension is zero.
    pub fn new(dimension: usize) -> Result<Self> {
        if dimension == 0 {
            return Err(Error::new(
                ErrorCode::InvalidJob,
                "points have no dimension",
            ));
        }
        Ok(Points {
            dimension,
            numbers: Vec::new(),
        })
    }

    /// Adds a point.
    ///
    /// # Errors
    /// [`ErrorCode::BadRecord`] if it has another dimension, or a number that is not finite.
    pub fn push(&mut self, point: &[f64]) -> Result<()> {
        let bad = |what: String| Err(Error::new(ErrorCode::BadRecord, what));
        let dimension = self.dimension;
        if point.len() != dimension {
            let (number, found) = (self.len(), point.len());
            return bad(format!(
                "point {number} has {found} numbers instead of {dimension}"
            ));
        }
        if let Some(index) = point.iter().position(|number| !number.is_finite()) {
            let (number, value) = (self.len(), point[index]);
            return bad(format!("number {index} of point {number} is {value}"));
        }
        self.numbers.extend_from_slice(point);
        Ok(())
    }

    /// Returns the number of points.
    pub fn len(&self) -> usize {
        self.numbers.len() / self.dimension
    }

    /// Returns true if there are no points.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Returns the points.
    pub fn iter(&self) -> impl Iterator<Item = &[f64]> {
        self.numbers.chunks_exact(self.dimension)
    }

    fn point(&self, index: usize) -> &[f64] {
        &self.numbers[index * self.dimension..(index + 1) * self.dimension]
    }
}

/// Clusters of points by Lloyd's algorithm, from initial centroids by k-means++ (Arthur,
/// Vassilvitskii, 2007).
///
/// ```
/// use ardea_ml::{KMeans, Points};
///
/// let mut points = Points::new(1)?;
/// for number in [1.0, 1.2, 0.8, 9.0, 9.1, 8.9] {
///     points.push(&[number])?;
/// }
/// let model = KMeans::new(2).seed(3).train(&points)?;
/// assert_ne!(model.cluster_of(&[1.1])?, model.cluster_of(&[9.3])?);
/// assert!((model.inertia - 0.1).abs() < 1e-9);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct KMeans {
    clusters: usize,
    iterations: u64,
    tolerance: f64,
    seed: u64,
    partitions: usize,
    threads: u32,
    exchange: Option<Arc<dyn Exchange>>,
}

/// The result of [`KMeans`].
#[derive(Clone, PartialEq, Debug)]
pub struct KMeansModel {
    centroids: Centroids,
    /// The sum of squared distances to the nearest centroids before the last iteration; zero
    /// without iterations.
    pub inertia: f64,
    /// The number of iterations.
    pub iterations: u64,
}

impl KMeans {
    /// Creates a training of this number of clusters.
    pub fn new(clusters: usize) -> Self {
        KMeans {
            clusters,
            iterations: 100,
            tolerance: 1e-9,
            seed: 0,
            partitions: 16,
            threads: 1,
            exchange: None,
        }
    }

    /// Sets the maximum number of iterations; 100 by default.
    pub fn iterations(mut self, most: u64) -> Self {
        self.iterations = most;
        self
    }

    /// Ends the training when no centroid moves by more than this distance; 1e-9 by default.
    pub fn tolerance(mut self, distance: f64) -> Self {
        self.tolerance = distance;
        self
    }

    /// Sets the seed of the initial centroids.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number of partitions; 16 by default. It has an effect on rounding.
    pub fn partitions(mut self, partitions: usize) -> Self {
        self.partitions = partitions;
        self
    }

    /// Sets the number of threads, which has no effect on the result.
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// Trains as one of several processes, which all have the same points: see
    /// [`Iterate::exchange`].
    pub fn exchange(mut self, exchange: Arc<dyn Exchange>) -> Self {
        self.exchange = Some(exchange);
        self
    }

    /// Returns the clusters of points.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] before anything runs, if there are no clusters, more clusters than
    /// points, or the tolerance is not a finite distance; [`ErrorCode::UserError`] if points are so
    /// far apart that squares of distances are infinite.
    pub fn train(&self, points: &Points) -> Result<KMeansModel> {
        let (clusters, dimension) = (self.clusters, points.dimension);
        if clusters == 0 || clusters > points.len() {
            let what = format!("{} points can't form {clusters} clusters", points.len());
            return Err(Error::new(ErrorCode::InvalidJob, what)
                .hint("give a number of clusters from one to the number of points"));
        }
        let tolerance = self.tolerance;
        if !(tolerance.is_finite() && tolerance >= 0.0) {
            let what = format!("the tolerance {tolerance} is no distance");
            return Err(
                Error::new(ErrorCode::InvalidJob, what).hint("give a finite number from zero")
            );
        }
        let mut variables = Variables::new();
        let initial = Centroids {
            dimension,
            numbers: self.initial(points),
            inertia: 0.0,
            moved: f64::MAX,
        };
        let centroids = variables.add("centroids", initial)?;
        let dataset = Dataset::split((0..points.len()).collect(), self.partitions)?;
        let limit = tolerance * tolerance;
        let mut iterate = Iterate::new(variables)
            .threads(self.threads)
            .iterations(self.iterations)
            .until(|values| Ok(values.get(&centroids)?.moved <= limit));
        if let Some(exchange) = &self.exchange {
            iterate = iterate.exchange(Arc::clone(exchange));
        }
        let report = iterate.run(&dataset, |task| {
            let current = task.get(&centroids)?;
            let mut update = ClusterSums {
                sums: vec![0.0; clusters * dimension],
                counts: vec![0; clusters],
                inertia: 0.0,
            };
            for index in task.partition() {
                let point = points.point(*index);
                let (cluster, distance) = current.nearest(point);
                let sums = &mut update.sums[cluster * dimension..(cluster + 1) * dimension];
                for (sum, number) in sums.iter_mut().zip(point) {
                    *sum += number;
                }
                update.counts[cluster] += 1;
                update.inertia += distance;
            }
            task.commit(&centroids, update)
        })?;
        let centroids = Centroids::clone(&*report.value(&centroids)?);
        Ok(KMeansModel {
            inertia: centroids.inertia,
            centroids,
            iterations: report.iterations(),
        })
    }

    /// Returns the initial centroids: each is a random point, with a probability that grows with
    /// its squared distance to the nearest one before.
    fn initial(&self, points: &Points) -> Vec<f64> {
        let mut random = SeededRandom::new(self.seed);
        let first = points.point(random.below(points.len() as u64) as usize);
        let mut numbers = first.to_vec();
        let mut distances: Vec<f64> = points.iter().map(|p| squared_distance(p, first)).collect();
        for _ in 1..self.clusters {
            let mut left = random.unit() * distances.iter().sum::<f64>();
            let chosen = distances.iter().position(|distance| {
                left -= distance;
                left < 0.0
            });
            // All points are centroids, or the sum was rounded.
            let chosen = points.point(chosen.unwrap_or(points.len() - 1));
            numbers.extend_from_slice(chosen);
            for (distance, point) in distances.iter_mut().zip(points.iter()) {
                *distance = distance.min(squared_distance(point, chosen));
            }
        }
        numbers
    }
}

impl KMeansModel {
    /// Returns the centroids.
    pub fn centroids(&self) -> impl Iterator<Item = &[f64]> {
        self.centroids
            .numbers
            .chunks_exact(self.centroids.dimension)
    }

    /// Returns the cluster of a point.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the point has another dimension.
    pub fn cluster_of(&self, point: &[f64]) -> Result<usize> {
        let dimension = self.centroids.dimension;
        if point.len() != dimension {
            let what = format!("a point has {} numbers instead of {dimension}", point.len());
            return Err(Error::new(ErrorCode::InvalidJob, what));
        }
        Ok(self.centroids.nearest(point).0)
    }
}
