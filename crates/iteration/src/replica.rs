//! The copy of the variables in one process: merges, applies and waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ardea_core::{Error, ErrorCode, Result};

use crate::erased::{UpdateOperations, UpdateSet, decode_set, encode_set, merge_sets};
use crate::exchange::{Exchange, ExchangeMessage, ExchangePayload, forwards};
use crate::fault::VariableFault;
use crate::reduction::{Reduction, ReductionStep, ReductionTree, Subtree};
use crate::report::IterationCounters;
use crate::variables::{VariableValues, Variables};

/// The maximum number of iterations whose times are recorded.
const MAX_TIMES: usize = 1 << 20;

/// A condition on the values, which ends the run when it is fulfilled.
pub(crate) type StopCondition<'a> =
    Box<dyn Fn(VariableValues<'_>) -> Result<bool> + Send + Sync + 'a>;

/// The state that all threads of the process share.
pub(crate) struct ReplicaState {
    pub(crate) variables: Variables,
    reductions: BTreeMap<u64, Reduction<UpdateSet>>,
    /// Merged updates of iterations that are not applied yet.
    merged: BTreeMap<u64, UpdateSet>,
    /// Set when the condition is fulfilled.
    pub(crate) is_stopped: bool,
    pub(crate) failure: Option<Error>,
    /// Times at which updates were applied.
    pub(crate) applied_at: Vec<Instant>,
    /// The time at which the first task of the current group began.
    pub(crate) group_began: Option<Instant>,
    /// The time of the last update before the current group.
    pub(crate) previous_end: Option<Instant>,
    pub(crate) counters: IterationCounters,
}

/// The copy of the variables in one process.
pub(crate) struct Replica<'a> {
    pub(crate) tree: ReductionTree,
    pub(crate) operations: Vec<Arc<dyn UpdateOperations>>,
    exchange: Option<Arc<dyn Exchange>>,
    condition: Option<StopCondition<'a>>,
    /// The first iteration of the run.
    first: u64,
    state: Mutex<ReplicaState>,
    changed: Condvar,
}

impl<'a> Replica<'a> {
    pub(crate) fn new(
        variables: Variables,
        tree: ReductionTree,
        exchange: Option<Arc<dyn Exchange>>,
        condition: Option<StopCondition<'a>>,
    ) -> Self {
        let values = variables.values.iter();
        Replica {
            tree,
            operations: values.map(|named| named.value.operations()).collect(),
            exchange,
            condition,
            first: variables.next,
            state: Mutex::new(ReplicaState {
                variables,
                reductions: BTreeMap::new(),
                merged: BTreeMap::new(),
                is_stopped: false,
                failure: None,
                applied_at: Vec::new(),
                group_began: None,
                previous_end: None,
                counters: IterationCounters::default(),
            }),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ReplicaState> {
        // A panic of user code ends the run, which then reads nothing but the failure.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn into_state(self) -> ReplicaState {
        let state = self.state.into_inner();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Evaluates the condition on restored values: a run that had ended does not continue.
    pub(crate) fn check_restored(&self) -> Result<()> {
        let mut state = self.lock();
        if let (Some(condition), true) = (&self.condition, self.first > 0) {
            state.is_stopped = condition(state.variables.values())?;
        }
        Ok(())
    }

    /// Waits until the values contain the updates of `iterations` iterations, the condition is
    /// fulfilled, or the run has failed.
    pub(crate) fn wait_for(&self, iterations: u64) -> MutexGuard<'_, ReplicaState> {
        let waited = self.changed.wait_while(self.lock(), |state| {
            state.failure.is_none() && !state.is_stopped && state.variables.next < iterations
        });
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the run with an error, in all processes. The first error is reported.
    pub(crate) fn fail(&self, error: Error) {
        let is_first = {
            let mut state = self.lock();
            let is_first = state.failure.is_none();
            state.failure.get_or_insert(error.clone());
            is_first
        };
        self.changed.notify_all();
        if let (true, Some(exchange)) = (is_first, &self.exchange) {
            let message = ExchangeMessage::Failed {
                process: exchange.process(),
                code: error.code().as_str().to_owned(),
                error: error.to_string(),
            };
            for to in (0..exchange.processes()).filter(|to| *to != exchange.process()) {
                // A lost peer has another reason to end.
                let _ = exchange.send(to, message.clone());
            }
        }
    }

    /// Adds the updates of a partition of this process.
    pub(crate) fn contribute(
        &self,
        iteration: u64,
        partition: u32,
        updates: UpdateSet,
    ) -> Result<()> {
        let leaf = Subtree::leaf(partition);
        let step = {
            let mut state = self.lock();
            let reduction = state.reductions.entry(iteration).or_default();
            reduction.insert(&self.tree, leaf, updates)
        };
        self.carry_out(iteration, step)
    }

    /// Carries out steps of the reduction until one waits. Merges happen without the lock.
    fn carry_out(&self, iteration: u64, mut step: ReductionStep<UpdateSet>) -> Result<()> {
        loop {
            step = match step {
                ReductionStep::Wait => return Ok(()),
                ReductionStep::Merge {
                    parent,
                    mut left,
                    right,
                } => {
                    merge_sets(&self.operations, &mut left, right);
                    let mut state = self.lock();
                    let reduction = state.reductions.entry(iteration).or_default();
                    reduction.insert(&self.tree, parent, left)
                }
                ReductionStep::Send { to, node, updates } => {
                    let updates = encode_set(&self.operations, &updates)?.into();
                    let message = ExchangeMessage::Subtree {
                        iteration,
                        node,
                        updates,
                    };
                    return self.send(to, message);
                }
                ReductionStep::Complete(updates) => {
                    self.forward(iteration, || {
                        Ok(encode_set(&self.operations, &updates)?.into())
                    })?;
                    return self.complete(iteration, updates);
                }
            };
        }
    }

    /// Sends the merged updates of all partitions to the next processes.
    fn forward(
        &self,
        iteration: u64,
        encode: impl FnOnce() -> Result<ExchangePayload>,
    ) -> Result<()> {
        let Some(exchange) = &self.exchange else {
            return Ok(());
        };
        let mut targets = forwards(exchange.process(), exchange.processes()).peekable();
        if targets.peek().is_none() {
            return Ok(());
        }
        let updates = encode()?;
        for to in targets {
            let updates = updates.clone();
            self.send(to, ExchangeMessage::Merged { iteration, updates })?;
        }
        Ok(())
    }

    fn send(&self, to: u32, message: ExchangeMessage) -> Result<()> {
        let Some(exchange) = &self.exchange else {
            return Ok(());
        };
        {
            let mut state = self.lock();
            state.counters.exchanged_messages += 1;
            state.counters.exchanged_bytes += message.update_bytes() as u64;
        }
        exchange.send(to, message)
    }

    /// Applies merged updates, in the order of iterations.
    fn complete(&self, iteration: u64, updates: UpdateSet) -> Result<()> {
        let mut state = self.lock();
        if iteration >= state.variables.next {
            state.merged.insert(iteration, updates);
        }
        let outcome = self.apply_merged(&mut state);
        drop(state);
        self.changed.notify_all();
        outcome
    }

    fn apply_merged(&self, state: &mut ReplicaState) -> Result<()> {
        while !state.is_stopped && state.failure.is_none() {
            let iteration = state.variables.next;
            let Some(updates) = state.merged.remove(&iteration) else {
                break;
            };
            state.reductions.remove(&iteration);
            for (named, update) in state.variables.values.iter_mut().zip(updates) {
                let Some(update) = update else {
                    continue;
                };
                named.value.apply(update);
                if let Some(fault) = named.value.fault() {
                    let what = format!(
                        "the variable \"{}\" is invalid after iteration {iteration}: {fault}",
                        named.name
                    );
                    return Err(invalid_value(what, fault));
                }
            }
            state.variables.next += 1;
            if state.applied_at.len() < MAX_TIMES {
                state.applied_at.push(Instant::now());
            }
            if let Some(condition) = &self.condition {
                state.is_stopped = condition(state.variables.values())?;
            }
        }
        Ok(())
    }

    /// Processes a message of another process.
    pub(crate) fn on_message(&self, message: ExchangeMessage) -> Result<()> {
        match message {
            ExchangeMessage::Start {
                process,
                iterations,
                partitions,
                variables,
            } => self.check_start(process, iterations, partitions, &variables),
            ExchangeMessage::Subtree {
                iteration,
                node,
                updates,
            } => {
                if !self.tree.contains(node) {
                    let what =
                        format!("another process sent a partition that is not there: {node:?}");
                    return Err(Error::new(ErrorCode::BadMessage, what));
                }
                let updates = decode_set(&self.operations, updates.bytes())?;
                let step = {
                    let mut state = self.lock();
                    if iteration < state.variables.next {
                        return Ok(());
                    }
                    let reduction = state.reductions.entry(iteration).or_default();
                    reduction.receive(&self.tree, node, updates)
                };
                self.carry_out(iteration, step)
            }
            ExchangeMessage::Merged { iteration, updates } => {
                self.forward(iteration, || Ok(updates.clone()))?;
                let updates = decode_set(&self.operations, updates.bytes())?;
                self.complete(iteration, updates)
            }
            ExchangeMessage::Failed {
                process,
                code,
                error,
            } => {
                let code = ErrorCode::from_name(&code).unwrap_or(ErrorCode::PeerLost);
                let what = format!("process {process} of the iteration failed");
                Err(Error::new(code, what).because(error))
            }
            ExchangeMessage::Finished { .. } => Ok(()),
        }
    }

    /// Refuses a process that does not begin as this one.
    fn check_start(
        &self,
        process: u32,
        iterations: u64,
        partitions: u32,
        variables: &[String],
    ) -> Result<()> {
        let state = self.lock();
        let own = self.first;
        let differs = |what: String| Err(Error::new(ErrorCode::InvalidJob, what).permanent());
        if iterations != own {
            return differs(format!(
                "process {process} begins after {iterations} iterations, and this one after {own}"
            ))
            .map_err(|error| error.hint("restore all processes from snapshots of one iteration"));
        }
        if partitions != self.tree.partitions() {
            return differs(format!(
                "process {process} has {partitions} partitions, and this one {}",
                self.tree.partitions()
            ));
        }
        let names = state.variables.values.iter().map(|named| &named.name);
        if !names.eq(variables) {
            return differs(format!(
                "process {process} has other variables than this one"
            ));
        }
        Ok(())
    }
}

pub(crate) fn invalid_value(what: String, fault: VariableFault) -> Error {
    let hint = match fault {
        VariableFault::WrongSize { .. } => "commit updates of the variable's size",
        _ => "check the input and reduce the step size",
    };
    Error::new(ErrorCode::UserError, what)
        .hint(hint)
        .permanent()
}
