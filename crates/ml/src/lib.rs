//! Machine learning on iterations: linear classifiers and k-means.
//!
//! * [`Examples`]: labelled rows, dense or sparse; [`libsvm`]: a reader of the libsvm format;
//! * [`LinearClassifier`]: logistic regression and linear support vector machines, by mini-batch
//!   gradient descent with L1 and L2 penalties; [`LinearModel`]: the result;
//! * [`OnlineClassifier`]: a logistic regression that learns from the records of a stream;
//! * [`KMeans`]: clusters of [`Points`];
//! * [`SeededRandom`]: the random numbers of shuffles and initial values.
//!
//! Results depend on the data, the settings, the seed and the number of partitions. They do not
//! depend on the number of threads.
//!
//! ```
//! use ardea_ml::{Examples, LinearClassifier};
//!
//! let mut examples = Examples::dense(2);
//! for n in 0..200 {
//!     let (x, y) = (f64::from(n % 20) / 10.0 - 1.0, f64::from(n / 20) / 5.0 - 1.0);
//!     examples.push_dense(if x + y > 0.1 { 1.0 } else { -1.0 }, &[x, y])?;
//! }
//! let training = LinearClassifier::logistic_regression()
//!     .iterations(300)
//!     .threads(2)
//!     .train(&examples)?;
//! let evaluation = training.model.evaluate(&examples)?;
//! assert!(evaluation.accuracy > 0.97, "{evaluation:?}");
//! # Ok::<(), ardea_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod examples;
pub mod libsvm;
mod seeded_random;

mod classifier;
mod linear_model;
mod loss;
mod online;
mod sgd;

mod clusters;
mod kmeans;

pub use classifier::{LinearClassifier, Training};
pub use examples::Examples;
pub use kmeans::{KMeans, KMeansModel, Points};
pub use linear_model::{Evaluation, LinearModel};
pub use loss::LossFunction;
pub use online::OnlineClassifier;
pub use seeded_random::SeededRandom;
pub use sgd::StepSize;
