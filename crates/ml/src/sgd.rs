//! Mini-batch gradient descent as a shared variable: tasks commit gradients, and their sum changes
//! the weights.

use ardea_iteration::{
    Merge, SharedVariable, SparseAccumulator, SparseVector, VariableFault, VectorUpdate,
};
use serde::{Deserialize, Serialize};

use crate::examples::Examples;
use crate::loss::{LossFunction, sign};

/// Growth of the loss over its first value (at least one) after which a run has diverged.
const DIVERGED_FACTOR: f64 = 1e3;
/// The least divisor of AdaGrad.
const LEAST_ROOT: f64 = 1e-8;

/// The size of a step against the gradient.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum StepSize {
    /// The same for all iterations.
    Constant(f64),
    /// This size divided by the root of the iteration's number, from one.
    InverseRoot(f64),
    /// AdaGrad (Duchi, Hazan, Singer, 2011): this size divided by the root of the sum of squares of
    /// a feature's gradients. Rare features have larger steps.
    Adaptive(f64),
}

impl StepSize {
    pub(crate) fn size(self) -> f64 {
        match self {
            StepSize::Constant(size) | StepSize::InverseRoot(size) | StepSize::Adaptive(size) => {
                size
            }
        }
    }
}

/// The penalties and steps of gradient descent.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct DescentRule {
    pub(crate) step: StepSize,
    pub(crate) l1: f64,
    pub(crate) l2: f64,
}

/// The sum of gradients over a part of a batch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct GradientUpdate {
    pub(crate) gradient: VectorUpdate,
    pub(crate) bias: f64,
    pub(crate) loss: f64,
    pub(crate) rows: u64,
}

impl Merge for GradientUpdate {
    fn merge(&mut self, other: Self) {
        self.gradient.merge(other.gradient);
        self.bias += other.bias;
        self.loss += other.loss;
        self.rows += other.rows;
    }

    fn fault(&self) -> Option<VariableFault> {
        self.gradient
            .fault()
            .or_else(|| VariableFault::in_number(self.bias))
            .or_else(|| VariableFault::in_number(self.loss))
    }
}

/// The weights during the training.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct DescentState {
    pub(crate) rule: DescentRule,
    pub(crate) weights: Vec<f64>,
    pub(crate) bias: f64,
    /// Sums of squares of gradients, for AdaGrad; the last one is that of the bias.
    squares: Vec<f64>,
    iterations: u64,
    /// The objective on the last batch, before its step.
    pub(crate) loss: f64,
    /// The change of the objective since the batch before.
    pub(crate) loss_change: f64,
    limit: f64,
}

impl DescentState {
    pub(crate) fn new(features: usize, rule: DescentRule) -> Self {
        let squares = match rule.step {
            StepSize::Adaptive(_) => features + 1,
            _ => 0,
        };
        DescentState {
            rule,
            weights: vec![0.0; features],
            bias: 0.0,
            squares: vec![0.0; squares],
            iterations: 0,
            loss: 0.0,
            loss_change: f64::MAX,
            limit: f64::MAX,
        }
    }

    /// Returns the step for a feature with the gradient `gradient`.
    #[inline]
    fn step(&mut self, position: usize, gradient: f64) -> f64 {
        match self.rule.step {
            StepSize::Constant(size) => size,
            StepSize::InverseRoot(size) => size / ((self.iterations + 1) as f64).sqrt(),
            StepSize::Adaptive(size) => {
                let squares = &mut self.squares[position];
                *squares += gradient * gradient;
                size / squares.sqrt().max(LEAST_ROOT)
            }
        }
    }

    #[inline]
    fn descend(&mut self, feature: usize, gradient: f64) {
        let weight = self.weights[feature];
        if gradient == 0.0 && weight == 0.0 {
            return;
        }
        let gradient = gradient + self.rule.l2 * weight;
        let step = self.step(feature, gradient);
        let moved = weight - step * gradient;
        let threshold = step * self.rule.l1;
        self.weights[feature] = moved.signum() * (moved.abs() - threshold).max(0.0);
    }

    /// Returns the fault that a gradient would leave in the weights, if any. Penalties are not
    /// considered.
    pub(crate) fn fault_after(&self, gradient: &SparseVector, bias: f64) -> Option<VariableFault> {
        let features = self.weights.len();
        let after = |position: usize, weight: f64, gradient: f64| {
            let (step, square) = match self.rule.step {
                StepSize::Constant(size) => (size, 0.0),
                StepSize::InverseRoot(size) => (size / ((self.iterations + 1) as f64).sqrt(), 0.0),
                StepSize::Adaptive(size) => {
                    let square = self.squares[position] + gradient * gradient;
                    (size / square.sqrt().max(LEAST_ROOT), square)
                }
            };
            // The sum of two finite numbers may be infinite as well.
            [square, weight - step * gradient]
        };
        let weights = gradient.iter().find_map(|(feature, gradient)| {
            let after = after(feature, self.weights[feature], gradient);
            let value = after.into_iter().find(|number| !number.is_finite())?;
            let index = Some(feature);
            Some(VariableFault::NotFinite { index, value })
        });
        weights.or_else(|| {
            let after = after(features, self.bias, bias);
            after.into_iter().find_map(VariableFault::in_number)
        })
    }

    /// Returns the penalties of the current weights.
    fn penalty(&self) -> f64 {
        let DescentRule { l1, l2, .. } = self.rule;
        if l1 == 0.0 && l2 == 0.0 {
            return 0.0;
        }
        let penalties = self.weights.iter();
        penalties.map(|w| l1 * w.abs() + 0.5 * l2 * w * w).sum()
    }
}

impl SharedVariable for DescentState {
    type Update = GradientUpdate;

    fn apply(&mut self, update: GradientUpdate) {
        if update.rows == 0 {
            return;
        }
        let share = 1.0 / update.rows as f64;
        let loss = update.loss * share + self.penalty();
        self.loss_change = match self.iterations {
            0 => f64::MAX,
            _ => (loss - self.loss).abs(),
        };
        if self.iterations == 0 {
            self.limit = DIVERGED_FACTOR * loss.max(1.0);
        }
        self.loss = loss;
        match update.gradient {
            VectorUpdate::Dense(gradient) => {
                for (feature, sum) in gradient.into_iter().enumerate() {
                    self.descend(feature, sum * share);
                }
            }
            VectorUpdate::Sparse(gradient) if self.rule.l1 == 0.0 && self.rule.l2 == 0.0 => {
                for (feature, sum) in gradient.iter() {
                    self.descend(feature, sum * share);
                }
            }
            VectorUpdate::Sparse(gradient) => {
                // Penalties change all weights.
                let mut stored = gradient.iter().peekable();
                for feature in 0..self.weights.len() {
                    let next = stored.next_if(|(index, _)| *index == feature);
                    self.descend(feature, next.map_or(0.0, |(_, sum)| sum * share));
                }
            }
        }
        let bias = update.bias * share;
        let features = self.weights.len();
        self.bias -= self.step(features, bias) * bias;
        self.iterations += 1;
    }

    fn fault_of(&self, update: &GradientUpdate) -> Option<VariableFault> {
        let size = self.weights.len();
        update.gradient.fault_for(size).or_else(|| update.fault())
    }

    fn fault(&self) -> Option<VariableFault> {
        let faults = VariableFault::in_numbers(&self.weights);
        let faults = faults.or_else(|| VariableFault::in_number(self.bias));
        faults.or_else(|| match self.loss > self.limit {
            true => Some(VariableFault::Diverged {
                value: self.loss,
                limit: self.limit,
            }),
            false => VariableFault::in_number(self.loss),
        })
    }
}

/// The division of batches among partitions. Row by row, batches take the next row of each
/// partition in turn. So all rows are used equally often, also if a batch has fewer rows than there
/// are partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchPlan {
    /// The rows of a batch; `None` for all rows.
    rows: Option<usize>,
    partitions: usize,
}

impl BatchPlan {
    /// Creates the plan of batches of at most `batch` of `total` rows.
    pub(crate) fn new(batch: usize, total: usize, partitions: usize) -> Self {
        BatchPlan {
            rows: (batch < total).then_some(batch),
            partitions,
        }
    }

    /// Returns the window of an iteration in a partition of `len` rows.
    pub(crate) fn window(self, partition: usize, len: usize, iteration: u64) -> BatchWindow {
        let all = BatchWindow {
            begin: 0,
            rows: len,
        };
        let Some(batch) = self.rows else {
            return all;
        };
        // The rows that earlier batches have taken from the partition.
        let taken = |iterations: u128| {
            (iterations * batch as u128 + partition as u128) / self.partitions as u128
        };
        let begin = taken(iteration.into());
        let rows = taken(u128::from(iteration) + 1) - begin;
        if rows >= len as u128 {
            return all;
        }
        // Both are below the length.
        BatchWindow {
            begin: (begin % len as u128) as usize,
            rows: rows as usize,
        }
    }
}

/// The rows of a partition that belong to a batch: a window that moves through the partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchWindow {
    begin: usize,
    rows: usize,
}

impl BatchWindow {
    /// Returns the rows of a partition of `len` rows.
    fn rows(self, len: usize) -> impl Iterator<Item = usize> {
        (self.begin..self.begin + self.rows).map(move |row| if row < len { row } else { row - len })
    }
}

/// The form of the gradients that tasks commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GradientForm {
    Dense,
    Sparse {
        /// Omits gradients that can't make a zero weight non-zero by themselves.
        is_filtered: bool,
    },
}

/// Returns the sum of gradients over some rows.
pub(crate) fn gradient(
    examples: &Examples,
    window: BatchWindow,
    state: &DescentState,
    loss: LossFunction,
    form: GradientForm,
) -> GradientUpdate {
    let features = examples.features();
    let mut sums = match form {
        GradientForm::Dense => (vec![0.0; features], None),
        GradientForm::Sparse { .. } => (Vec::new(), Some(SparseAccumulator::new(features))),
    };
    let (mut bias, mut total) = (0.0, 0.0);
    for row in window.rows(examples.len()) {
        let label = sign(examples.labels()[row]);
        let margin = label * (examples.dot(row, &state.weights) + state.bias);
        total += loss.loss(margin);
        let factor = label * loss.slope(margin);
        if factor == 0.0 {
            continue;
        }
        bias += factor;
        match &mut sums {
            (dense, None) => examples.visit(row, |index, x| dense[index as usize] += factor * x),
            (_, Some(sparse)) => examples.visit(row, |index, x| sparse.add(index, factor * x)),
        }
    }
    let least = state.rule.l1 * window.rows as f64;
    let gradient = match (sums, form) {
        ((_, Some(sparse)), GradientForm::Sparse { is_filtered: true }) => {
            sparse.into_update(|index, sum| state.weights[index] != 0.0 || sum.abs() > least)
        }
        ((_, Some(sparse)), _) => sparse.into_update(|_, _| true),
        ((dense, None), _) => VectorUpdate::Dense(dense),
    };
    GradientUpdate {
        gradient,
        bias,
        loss: total,
        rows: window.rows as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_visit_all_rows_of_a_partition_in_turn() {
        let mut visits = [0; 10];
        let plan = BatchPlan::new(6, 20, 2);
        for iteration in 0..10 {
            for row in plan.window(1, 10, iteration).rows(10) {
                visits[row] += 1;
            }
        }
        assert_eq!(visits, [3; 10]);
        let plan = BatchPlan::new(100, 20, 2);
        assert_eq!(plan.window(0, 10, 3), BatchWindow { begin: 0, rows: 10 });
        assert_eq!(plan.window(0, 0, 3).rows(0).count(), 0);
    }

    #[test]
    fn batches_of_any_size_use_all_rows_equally_often() {
        for batch in 1..=40 {
            let (partitions, len) = (8, 5);
            let plan = BatchPlan::new(batch, partitions * len, partitions);
            let mut visits = vec![0; partitions * len];
            for iteration in 0..40 {
                let before: usize = visits.iter().sum();
                for partition in 0..partitions {
                    for row in plan.window(partition, len, iteration).rows(len) {
                        visits[partition * len + row] += 1;
                    }
                }
                assert_eq!(visits.iter().sum::<usize>() - before, batch);
            }
            assert_eq!(visits, vec![batch; partitions * len]);
        }
    }

    #[test]
    fn a_penalty_of_the_first_order_keeps_small_weights_at_zero() {
        let rule = DescentRule {
            step: StepSize::Constant(1.0),
            l1: 0.5,
            l2: 0.0,
        };
        let mut state = DescentState::new(3, rule);
        state.apply(GradientUpdate {
            gradient: VectorUpdate::Dense(vec![-0.4, -2.0, 2.0]),
            bias: 0.0,
            loss: 1.0,
            rows: 1,
        });
        assert_eq!(state.weights, [0.0, 1.5, -1.5]);
    }
}
