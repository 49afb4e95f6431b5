//! Classifiers that learn from one example at a time, for streams.

use ardea_core::Result;
use ardea_iteration::{SharedVariable, SparseVector, VectorUpdate};
use serde::{Deserialize, Serialize};

use crate::loss::{LossFunction, sign};
use crate::sgd::{DescentRule, DescentState, GradientUpdate, StepSize};

/// A logistic regression that learns from one example at a time. It is a state value: steps of
/// pipelines keep it in checkpoints and send it to other steps.
///
/// ```
/// use ardea_ml::{OnlineClassifier, StepSize};
///
/// let mut model = OnlineClassifier::new(2, StepSize::Adaptive(0.5));
/// for n in 0..100 {
///     model.learn(&[(n % 2, 1.0)], n % 2 == 1)?;
/// }
/// assert!(model.probability(&[(1, 1.0)]) > 0.9);
/// assert!(model.probability(&[(0, 1.0)]) < 0.1);
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OnlineClassifier {
    state: DescentState,
    examples: u64,
}

impl OnlineClassifier {
    /// Creates a model of zeros.
    pub fn new(features: usize, step: StepSize) -> Self {
        let rule = DescentRule {
            step,
            l1: 0.0,
            l2: 0.0,
        };
        OnlineClassifier {
            state: DescentState::new(features, rule),
            examples: 0,
        }
    }

    /// Returns the number of examples that the model has learned.
    pub fn examples(&self) -> u64 {
        self.examples
    }

    /// Returns the probability of the positive class. Features that the model does not have are
    /// ignored.
    pub fn probability(&self, features: &[(u32, f64)]) -> f64 {
        1.0 / (1.0 + (-self.score(features)).exp())
    }

    fn score(&self, features: &[(u32, f64)]) -> f64 {
        let weights = &self.state.weights;
        let products = features.iter().map(|(index, x)| {
            let weight = weights.get(*index as usize).copied();
            weight.unwrap_or_default() * x
        });
        products.sum::<f64>() + self.state.bias
    }

    /// Learns an example of features by ascending index; returns its loss before that.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`](ardea_core::ErrorCode::InvalidJob) if the indices are not
    /// ascending or not below the number of features.
    pub fn learn(&mut self, features: &[(u32, f64)], is_positive: bool) -> Result<f64> {
        let label = sign(if is_positive { 1.0 } else { -1.0 });
        let margin = label * self.score(features);
        let loss = LossFunction::Logistic.loss(margin);
        let factor = label * LossFunction::Logistic.slope(margin);
        let indices = features.iter().map(|(index, _)| *index).collect();
        let numbers = features.iter().map(|(_, x)| factor * x).collect();
        let gradient = SparseVector::new(self.state.weights.len(), indices, numbers)?;
        self.state.apply(GradientUpdate {
            gradient: VectorUpdate::Sparse(gradient),
            bias: factor,
            loss,
            rows: 1,
        });
        self.examples += 1;
        Ok(loss)
    }
}
