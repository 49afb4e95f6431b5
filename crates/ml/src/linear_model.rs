//! The result of training a linear classifier.

use ardea_core::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};

use crate::examples::Examples;
use crate::loss::{LossFunction, sign};

/// A weight for each feature and a bias: a row belongs to the positive class if its score is
/// positive.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinearModel {
    /// The weights.
    pub weights: Vec<f64>,
    /// The bias.
    pub bias: f64,
    /// The loss that was minimized.
    pub loss: LossFunction,
}

/// The quality of a model on some examples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Evaluation {
    /// The mean loss without penalties.
    pub loss: f64,
    /// The share of examples whose class is predicted.
    pub accuracy: f64,
}

impl LinearModel {
    /// Returns the score of a row of all features.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the row has another number of features.
    pub fn score(&self, row: &[f64]) -> Result<f64> {
        self.check(row.len())?;
        let products = row.iter().zip(&self.weights).map(|(x, w)| x * w);
        Ok(products.sum::<f64>() + self.bias)
    }

    /// Returns the probability of the positive class for a row of all features, for logistic
    /// regression.
    ///
    /// # Errors
    /// As [`score`](Self::score).
    pub fn probability(&self, row: &[f64]) -> Result<f64> {
        Ok(1.0 / (1.0 + (-self.score(row)?).exp()))
    }

    /// Returns the quality of the model on examples.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the examples have another number of features, or if there are
    /// none.
    pub fn evaluate(&self, examples: &Examples) -> Result<Evaluation> {
        self.check(examples.features())?;
        if examples.is_empty() {
            let what = "there are no examples to evaluate";
            return Err(Error::new(ErrorCode::InvalidJob, what));
        }
        let (mut loss, mut correct) = (0.0, 0_usize);
        for (row, label) in examples.labels().iter().enumerate() {
            let score = examples.dot(row, &self.weights) + self.bias;
            loss += self.loss.loss(sign(*label) * score);
            correct += usize::from((score > 0.0) == (*label > 0.0));
        }
        let count = examples.len() as f64;
        Ok(Evaluation {
            loss: loss / count,
            accuracy: correct as f64 / count,
        })
    }

    /// Returns the number of weights that are not zero.
    pub fn non_zero(&self) -> usize {
        self.weights.iter().filter(|weight| **weight != 0.0).count()
    }

    fn check(&self, features: usize) -> Result<()> {
        if features == self.weights.len() {
            return Ok(());
        }
        let expected = self.weights.len();
        let what = format!("a model of {expected} features can't score rows of {features}");
        Err(Error::new(ErrorCode::InvalidJob, what).hint("give rows the features of the training"))
    }
}
