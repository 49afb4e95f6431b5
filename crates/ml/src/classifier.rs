//! Training of linear classifiers.

use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use ardea_iteration::{Dataset, Exchange, Iterate, IterationReport, Variables};

use crate::examples::Examples;
use crate::linear_model::LinearModel;
use crate::loss::LossFunction;
use crate::sgd::{BatchPlan, DescentRule, DescentState, GradientForm, StepSize, gradient};

/// Training of a linear classifier by mini-batch gradient descent.
///
/// The objective is the mean loss, plus `l1` times the sum of absolute weights, plus half of `l2`
/// times the sum of squared weights. The bias has no penalty. Labels above zero are the positive
/// class. Rows are shuffled once, by the seed. Each batch takes the next row of each partition in
/// turn.
#[derive(Clone, Debug)]
pub struct LinearClassifier {
    loss: LossFunction,
    rule: DescentRule,
    batch: usize,
    iterations: u64,
    tolerance: Option<f64>,
    seed: u64,
    partitions: usize,
    threads: u32,
    group: u64,
    form: Option<GradientForm>,
    exchange: Option<Arc<dyn Exchange>>,
}

/// The result of a training.
#[derive(Debug)]
pub struct Training {
    /// The model.
    pub model: LinearModel,
    /// The objective on the last batch, penalties included.
    pub objective: f64,
    /// Iterations, times and counters.
    pub report: IterationReport,
}

impl LinearClassifier {
    /// Creates a logistic regression.
    pub fn logistic_regression() -> Self {
        LinearClassifier::new(LossFunction::Logistic)
    }

    /// Creates a linear support vector machine.
    pub fn svm() -> Self {
        LinearClassifier::new(LossFunction::Hinge)
    }

    fn new(loss: LossFunction) -> Self {
        LinearClassifier {
            loss,
            rule: DescentRule {
                step: StepSize::Adaptive(0.5),
                l1: 0.0,
                l2: 0.0,
            },
            batch: usize::MAX,
            iterations: 100,
            tolerance: None,
            seed: 0,
            partitions: 16,
            threads: 1,
            group: 10,
            form: None,
            exchange: None,
        }
    }

    /// Sets the step size; `StepSize::Adaptive(0.5)` by default.
    pub fn step(mut self, step: StepSize) -> Self {
        self.rule.step = step;
        self
    }

    /// Sets the weight of the L1 penalty, which makes weights zero.
    pub fn l1(mut self, weight: f64) -> Self {
        self.rule.l1 = weight;
        self
    }

    /// Sets the weight of the L2 penalty.
    pub fn l2(mut self, weight: f64) -> Self {
        self.rule.l2 = weight;
        self
    }

    /// Sets the number of rows of a batch. By default each iteration uses all rows.
    pub fn batch(mut self, rows: usize) -> Self {
        self.batch = rows;
        self
    }

    /// Sets the maximum number of iterations; 100 by default.
    pub fn iterations(mut self, most: u64) -> Self {
        self.iterations = most;
        self
    }

    /// Ends the training when the objective changes by less than `change`. It is meant for batches
    /// of all rows.
    pub fn tolerance(mut self, change: f64) -> Self {
        self.tolerance = Some(change);
        self
    }

    /// Sets the seed of the shuffle.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number of partitions; 16 by default. It has an effect on batches and rounding.
    pub fn partitions(mut self, partitions: usize) -> Self {
        self.partitions = partitions;
        self
    }

    /// Sets the number of threads, which has no effect on the result.
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the number of iterations in a group; 10 by default.
    pub fn group(mut self, iterations: u64) -> Self {
        self.group = iterations;
        self
    }

    /// Commits all components of gradients. By default, sparse examples lead to sparse gradients.
    pub fn dense_updates(mut self) -> Self {
        self.form = Some(GradientForm::Dense);
        self
    }

    /// Commits only gradients that can change the model: those of a feature with a weight of zero
    /// are omitted if they are not above the L1 penalty (the KKT filter of Li et al., "Scaling
    /// distributed machine learning with the parameter server", OSDI 2014). Fewer bytes are
    /// exchanged, and the result differs slightly.
    pub fn filtered_updates(mut self) -> Self {
        self.form = Some(GradientForm::Sparse { is_filtered: true });
        self
    }

    /// Trains as one of several processes: see [`Iterate::exchange`].
    pub fn exchange(mut self, exchange: Arc<dyn Exchange>) -> Self {
        self.exchange = Some(exchange);
        self
    }

    /// Trains on examples.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] before anything runs, if a setting is invalid or there are no
    /// examples; [`ErrorCode::UserError`] if the training diverges.
    pub fn train(&self, examples: &Examples) -> Result<Training> {
        self.check()?;
        self.train_partitions(&examples.split(self.partitions, self.seed)?)
    }

    /// Trains on examples that are already shuffled and split. Each process needs all partitions,
    /// because the size of batches depends on their rows.
    ///
    /// # Errors
    /// As [`train`](Self::train), and [`ErrorCode::InvalidJob`] if the partitions have different
    /// numbers of features.
    pub fn train_partitions(&self, dataset: &Dataset<Examples>) -> Result<Training> {
        self.check()?;
        let partitions = dataset.partitions();
        let features = partitions.first().map_or(0, Examples::features);
        if let Some(other) = partitions.iter().find(|part| part.features() != features) {
            let what = format!(
                "partitions have {features} and {} features",
                other.features()
            );
            return Err(Error::new(ErrorCode::InvalidJob, what).hint("give all the same number"));
        }
        let rows: usize = partitions.iter().map(Examples::len).sum();
        if rows == 0 {
            return Err(Error::new(
                ErrorCode::InvalidJob,
                "there are no examples to train on",
            ));
        }
        let plan = BatchPlan::new(self.batch, rows, partitions.len());
        let form = self.form(&partitions[0]);
        let mut variables = Variables::new();
        let state = variables.add("model", DescentState::new(features, self.rule))?;
        let mut iterate = Iterate::new(variables)
            .threads(self.threads)
            .group(self.group)
            .iterations(self.iterations);
        if let Some(exchange) = &self.exchange {
            iterate = iterate.exchange(Arc::clone(exchange));
        }
        if let Some(change) = self.tolerance {
            iterate = iterate.until(move |values| Ok(values.get(&state)?.loss_change < change));
        }
        let loss = self.loss;
        let report = iterate.run(dataset, |task| {
            let examples = task.partition();
            let window = plan.window(task.partition_index(), examples.len(), task.iteration());
            let update = gradient(examples, window, &*task.get(&state)?, loss, form);
            task.commit(&state, update)
        })?;
        let state = report.value(&state)?;
        Ok(Training {
            model: LinearModel {
                weights: state.weights.clone(),
                bias: state.bias,
                loss,
            },
            objective: state.loss,
            report,
        })
    }

    /// Computes the gradients of the iterations for a model of zeros, without merging, applying or
    /// exchanging them; returns the sum of losses. It is the baseline of benchmarks.
    pub fn arithmetic_only(&self, dataset: &Dataset<Examples>, iterations: u64) -> Result<f64> {
        let partitions: Vec<(usize, &Examples)> = dataset.partitions().iter().enumerate().collect();
        let Some((_, first)) = partitions.first() else {
            return Ok(0.0);
        };
        let form = self.form(first);
        let state = DescentState::new(first.features(), self.rule);
        let rows: usize = partitions.iter().map(|(_, part)| part.len()).sum();
        let plan = BatchPlan::new(self.batch, rows, partitions.len());
        let work = |own: &[(usize, &Examples)]| {
            let tasks =
                (0..iterations).flat_map(|iteration| own.iter().map(move |own| (iteration, own)));
            let losses = tasks.map(|(iteration, (part, examples))| {
                let window = plan.window(*part, examples.len(), iteration);
                gradient(examples, window, &state, self.loss, form).loss
            });
            losses.sum::<f64>()
        };
        let work = &work;
        let of_thread = partitions.len().div_ceil(self.threads.max(1) as usize);
        let losses = std::thread::scope(|scope| {
            let threads: Vec<_> = partitions
                .chunks(of_thread)
                .map(|own| scope.spawn(move || work(own)))
                .collect();
            let losses = threads.into_iter().map(|thread| thread.join());
            losses.collect::<std::thread::Result<Vec<f64>>>()
        });
        let losses = losses.map_err(|_| {
            Error::new(
                ErrorCode::Internal,
                "the arithmetic of gradients has panicked",
            )
        })?;
        Ok(losses.into_iter().sum())
    }

    /// Returns the form of gradients for examples, if none was chosen.
    fn form(&self, examples: &Examples) -> GradientForm {
        self.form.unwrap_or_else(|| match examples.is_sparse() {
            true => GradientForm::Sparse { is_filtered: false },
            false => GradientForm::Dense,
        })
    }

    fn check(&self) -> Result<()> {
        let DescentRule { step, l1, l2 } = self.rule;
        let refuse = |what: String| {
            Err(Error::new(ErrorCode::InvalidJob, what).hint("give a finite number"))
        };
        if !(step.size().is_finite() && step.size() > 0.0) {
            return refuse(format!("the step size {} is not above zero", step.size()));
        }
        for (name, weight) in [("L1", l1), ("L2", l2)] {
            if !(weight.is_finite() && weight >= 0.0) {
                return refuse(format!(
                    "the weight {weight} of the {name} penalty is below zero"
                ));
            }
        }
        if let Some(change) = self.tolerance
            && !(change.is_finite() && change >= 0.0)
        {
            return refuse(format!("the tolerance {change} is below zero"));
        }
        if self.batch == 0 {
            let what = "a batch of zero rows makes no progress";
            return Err(Error::new(ErrorCode::InvalidJob, what));
        }
        Ok(())
    }
}
