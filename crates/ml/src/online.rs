//! Classifiers that learn from one example at a time, for streams.

use ardea_core::{Error, ErrorCode, Result};
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
    refused: u64,
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
            refused: 0,
        }
    }

    /// Returns the number of examples that the model has learned.
    pub fn examples(&self) -> u64 {
        self.examples
    }

    /// Returns the number of examples that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
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
    /// [`ErrorCode::BadRecord`] if the indices are not ascending or not below the number of
    /// features, or if a number is not finite or too large. The example is counted as
    /// [refused](Self::refused), and the model stays as it was.
    pub fn learn(&mut self, features: &[(u32, f64)], is_positive: bool) -> Result<f64> {
        let learned = self.try_learn(features, is_positive);
        match learned {
            Ok(_) => self.examples += 1,
            Err(_) => self.refused += 1,
        }
        learned
    }

    fn try_learn(&mut self, features: &[(u32, f64)], is_positive: bool) -> Result<f64> {
        let bad = |reason: &dyn std::fmt::Display| {
            let what = format!("an example of {} features can't be learned", features.len());
            Error::new(ErrorCode::BadRecord, what).because(reason.to_string())
        };
        if let Some((index, number)) = features.iter().find(|(_, number)| !number.is_finite()) {
            return Err(bad(&format!("feature {index} is {number}")));
        }
        let label = sign(if is_positive { 1.0 } else { -1.0 });
        let margin = label * self.score(features);
        let loss = LossFunction::Logistic.loss(margin);
        let factor = label * LossFunction::Logistic.slope(margin);
        let indices = features.iter().map(|(index, _)| *index).collect();
        let numbers = features.iter().map(|(_, x)| factor * x).collect();
        let gradient = SparseVector::new(self.state.weights.len(), indices, numbers);
        let gradient = gradient.map_err(|error| bad(&error))?;
        if !loss.is_finite() {
            return Err(bad(&format!("its loss is {loss}")));
        }
        if let Some(fault) = self.state.fault_after(&gradient, factor) {
            return Err(bad(&fault));
        }
        self.state.apply(GradientUpdate {
            gradient: VectorUpdate::Sparse(gradient),
            bias: factor,
            loss,
            rows: 1,
        });
        Ok(loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_iteration::VariableFault;

    fn trained(step: StepSize) -> OnlineClassifier {
        let mut model = OnlineClassifier::new(3, step);
        for n in 0..50 {
            model.learn(&[(n % 2, 1.0)], n % 2 == 1).unwrap();
        }
        model
    }

    #[test]
    fn a_bad_example_is_refused_and_leaves_the_model_as_it_was() {
        let steps = [
            StepSize::Constant(0.5),
            StepSize::InverseRoot(0.5),
            StepSize::Adaptive(0.5),
        ];
        for step in steps {
            let mut model = trained(step);
            let before = model.clone();
            let bad: [&[(u32, f64)]; 6] = [
                &[(0, f64::NAN)],
                &[(0, 1.0), (2, f64::INFINITY)],
                &[(2, f64::NEG_INFINITY)],
                &[(3, 1.0)],
                &[(1, 1.0), (0, 1.0)],
                // The products are infinite.
                &[(0, 1e308), (1, -1e308), (2, 1e308)],
            ];
            for features in &bad[..5] {
                let error = model.learn(features, true).unwrap_err();
                assert_eq!(error.code(), ErrorCode::BadRecord, "{error}");
            }
            // A large number is learned if the model stays finite.
            let _ = model.learn(bad[5], false);
            assert!(model.refused() >= 5);
            if model.refused() == 6 {
                assert_eq!(model.state, before.state);
            }
            let fault = VariableFault::in_numbers(&model.state.weights);
            assert_eq!(fault, None, "{step:?}");
            for n in 0..50 {
                model.learn(&[(n % 2, 1.0)], n % 2 == 1).unwrap();
            }
            assert_eq!(model.examples() + model.refused(), 106);
        }
    }

    #[test]
    fn an_example_whose_gradient_has_an_infinite_square_is_refused() {
        let mut model = trained(StepSize::Adaptive(0.5));
        let before = model.state.clone();
        let error = model.learn(&[(2, 1e200)], true).unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadRecord, "{error}");
        assert_eq!(model.state, before);
        assert_eq!(model.refused(), 1);
    }
}
