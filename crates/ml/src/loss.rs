//! Loss functions of linear classifiers.

use serde::{Deserialize, Serialize};

/// The loss of an example as a function of its margin: the score times the label, which is 1 or -1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LossFunction {
    /// `ln(1 + exp(-margin))`, the negative log-likelihood of logistic regression.
    Logistic,
    /// `max(0, 1 - margin)`, of support vector machines.
    Hinge,
}

impl LossFunction {
    /// Returns the loss.
    #[inline]
    pub fn loss(self, margin: f64) -> f64 {
        match self {
            // Both forms are the same function; neither overflows.
            LossFunction::Logistic if margin > 0.0 => (-margin).exp().ln_1p(),
            LossFunction::Logistic => margin.exp().ln_1p() - margin,
            LossFunction::Hinge => (1.0 - margin).max(0.0),
        }
    }

    /// Returns the derivative of the loss by the margin.
    #[inline]
    pub fn slope(self, margin: f64) -> f64 {
        match self {
            LossFunction::Logistic => -1.0 / (1.0 + margin.exp()),
            LossFunction::Hinge if margin < 1.0 => -1.0,
            LossFunction::Hinge => 0.0,
        }
    }
}

/// Returns the label as 1 or -1: positive labels are 1.
#[inline]
pub(crate) fn sign(label: f64) -> f64 {
    if label > 0.0 { 1.0 } else { -1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_the_derivative_of_the_loss() {
        for loss in [LossFunction::Logistic, LossFunction::Hinge] {
            for margin in [-800.0, -3.0, -0.5, 0.0, 0.5, 3.0, 800.0] {
                let h = 1e-6;
                let numeric = (loss.loss(margin + h) - loss.loss(margin - h)) / (2.0 * h);
                let slope = loss.slope(margin);
                assert!(
                    (numeric - slope).abs() < 1e-4,
                    "{loss:?} {margin}: {numeric} {slope}"
                );
            }
        }
    }
}
