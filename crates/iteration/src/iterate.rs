//! Runs iterations.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};

use crate::dataset::Dataset;
use crate::exchange::{Exchange, ExchangeMessage};
use crate::group::{GroupPlan, GroupWorker, catch_panics};
use crate::reduction::ReductionTree;
use crate::replica::{Replica, ReplicaState, StopCondition};
use crate::report::{IterationReport, StopReason};
use crate::snapshot::Snapshot;
use crate::task::Task;
use crate::variables::{VariableValues, Variables};

/// The maximum number of threads of a process.
const MAX_THREADS: u32 = 1024;

/// A receiver of snapshots.
type SnapshotSink<'a> = Box<dyn FnMut(Snapshot) -> Result<()> + 'a>;

/// Runs a function on all partitions of a dataset, again and again.
///
/// Threads receive one decision for a group of iterations. Within the group they wait for updates
/// of other partitions only. Snapshots, callbacks of variables and reports happen between groups.
pub struct Iterate<'a> {
    variables: Variables,
    threads: u32,
    group: u64,
    iterations: Option<u64>,
    condition: Option<StopCondition<'a>>,
    snapshots: Option<(u64, SnapshotSink<'a>)>,
    exchange: Option<Arc<dyn Exchange>>,
}

impl fmt::Debug for Iterate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iterate")
            .field("variables", &self.variables)
            .field("threads", &self.threads)
            .field("group", &self.group)
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

impl<'a> Iterate<'a> {
    /// Prepares a run over these variables: one thread, groups of ten iterations.
    pub fn new(variables: Variables) -> Self {
        Iterate {
            variables,
            threads: 1,
            group: 10,
            iterations: None,
            condition: None,
            snapshots: None,
            exchange: None,
        }
    }

    /// Sets the number of threads. At most one thread per partition is used.
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the number of iterations in a group; 10 by default.
    pub fn group(mut self, iterations: u64) -> Self {
        self.group = iterations;
        self
    }

    /// Sets the maximum number of iterations, those before a restored snapshot included.
    pub fn iterations(mut self, most: u64) -> Self {
        self.iterations = Some(most);
        self
    }

    /// Ends the run after the first iteration for which `condition` returns true. It is evaluated
    /// once per iteration in each process, and on restored values before the first one. It must be
    /// deterministic.
    pub fn until(
        mut self,
        condition: impl Fn(VariableValues<'_>) -> Result<bool> + Send + Sync + 'a,
    ) -> Self {
        self.condition = Some(Box::new(condition));
        self
    }

    /// Passes a snapshot to `sink` after every `groups` groups. An error of `sink` ends the run.
    pub fn snapshots(
        mut self,
        groups: NonZeroU32,
        sink: impl FnMut(Snapshot) -> Result<()> + 'a,
    ) -> Self {
        self.snapshots = Some((groups.get().into(), Box::new(sink)));
        self
    }

    /// Runs as one of several processes, which work on a part of the partitions each. An exchange
    /// serves one run.
    pub fn exchange(mut self, exchange: Arc<dyn Exchange>) -> Self {
        self.exchange = Some(exchange);
        self
    }

    /// Runs `function` on all partitions until the condition is fulfilled or the number of
    /// iterations is reached.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] before anything runs, if a setting is invalid; the error of the
    /// function; [`ErrorCode::UserPanic`] if it panics; [`ErrorCode::UserError`] if a value or an
    /// update has a fault; [`ErrorCode::PeerLost`] if another process was lost;
    /// [`ErrorCode::LimitReached`] if updates are too long for a message to another process.
    pub fn run<P, F>(mut self, dataset: &Dataset<P>, function: F) -> Result<IterationReport>
    where
        P: Sync,
        F: Fn(&mut Task<'_, P>) -> Result<()> + Sync,
    {
        let exchange = self.exchange.take();
        let outcome = self.run_with(exchange.clone(), dataset, &function);
        if let Some(exchange) = exchange {
            exchange.close();
        }
        outcome
    }

    fn run_with<P, F>(
        self,
        exchange: Option<Arc<dyn Exchange>>,
        dataset: &Dataset<P>,
        function: &F,
    ) -> Result<IterationReport>
    where
        P: Sync,
        F: Fn(&mut Task<'_, P>) -> Result<()> + Sync,
    {
        let tree = self.check(exchange.as_deref(), dataset.partitions().len())?;
        let began = Instant::now();
        let Iterate {
            variables,
            threads,
            group,
            iterations,
            condition,
            mut snapshots,
            ..
        } = self;
        let own = tree.own();
        let threads = threads.min(own.end - own.start);
        let first = variables.next;
        let limit = iterations.unwrap_or(u64::MAX).max(first);
        let replica = Replica::new(variables, tree, exchange.clone(), condition);
        announce(&replica, exchange.as_deref())?;
        thread::scope(|scope| {
            if let Some(exchange) = exchange.clone() {
                let replica = &replica;
                scope.spawn(move || receive(replica, &*exchange));
            }
            let (report, reports) = mpsc::channel();
            let plans: Vec<_> = (0..threads)
                .map(|thread| {
                    let (plan, plans) = mpsc::channel();
                    let worker = GroupWorker {
                        replica: &replica,
                        dataset,
                        function,
                        partitions: tree.of_thread(threads, thread),
                    };
                    let report = report.clone();
                    scope.spawn(move || worker.run(&plans, &report));
                    plan
                })
                .collect();
            drop(report);
            let mut coordinator = Coordinator {
                replica: &replica,
                plans,
                reports,
                snapshots: &mut snapshots,
            };
            let place = || "a callback between groups".to_owned();
            let outcome = catch_panics(place, || coordinator.run(first, limit, group));
            if let Err(error) = outcome {
                replica.fail(error);
            }
            if let Some(exchange) = &exchange {
                finish(&replica, &**exchange);
            }
        });
        report(replica.into_state(), began)
    }

    /// Checks the settings; returns the order of merges.
    fn check(&self, exchange: Option<&dyn Exchange>, partitions: usize) -> Result<ReductionTree> {
        let refuse =
            |what: String, hint: &str| Err(Error::new(ErrorCode::InvalidJob, what).hint(hint));
        if !(1..=MAX_THREADS).contains(&self.threads) {
            let what = format!("an iteration can't run on {} threads", self.threads);
            return refuse(what, "give a number from 1 to 1024");
        }
        if self.group == 0 {
            let what = "a group of zero iterations makes no progress";
            return refuse(what.into(), "give at least 1");
        }
        if self.iterations.is_none() && self.condition.is_none() {
            let what = "the iteration has no end";
            return refuse(what.into(), "call `iterations` or `until`");
        }
        let (processes, process) = match exchange {
            Some(exchange) => (exchange.processes(), exchange.process()),
            None => (1, 0),
        };
        if partitions < processes as usize || process >= processes {
            let what = format!("{partitions} partitions are too few for {processes} processes");
            return refuse(what, "split the dataset into more partitions");
        }
        Ok(ReductionTree::new(partitions as u32, processes, process))
    }
}

/// Sends the start of this process to all others.
fn announce(replica: &Replica<'_>, exchange: Option<&dyn Exchange>) -> Result<()> {
    let Some(exchange) = exchange else {
        return Ok(());
    };
    let message = {
        let state = replica.lock();
        let values = state.variables.values.iter();
        ExchangeMessage::Start {
            process: exchange.process(),
            iterations: state.variables.next,
            partitions: replica.tree.partitions(),
            variables: values.map(|named| named.name.clone()).collect(),
        }
    };
    for to in (0..exchange.processes()).filter(|to| *to != exchange.process()) {
        exchange.send(to, message.clone())?;
    }
    Ok(())
}

/// Processes the messages of other processes until the exchange is closed.
fn receive(replica: &Replica<'_>, exchange: &dyn Exchange) {
    loop {
        let outcome = match exchange.receive() {
            Ok(None) => return,
            Ok(Some(message)) => {
                let place = || "updates of another process".to_owned();
                catch_panics(place, || replica.on_message(message))
            }
            Err(error) => {
                replica.fail(error);
                return;
            }
        };
        if let Err(error) = outcome {
            replica.fail(error);
        }
    }
}

/// Tells the others that this process needs nothing more from them, and closes the exchange.
fn finish(replica: &Replica<'_>, exchange: &dyn Exchange) {
    let process = exchange.process();
    let has_failed = replica.lock().failure.is_some();
    if !has_failed {
        for to in (0..exchange.processes()).filter(|to| *to != process) {
            // The others have all updates as well, or report the lost connection themselves.
            let _ = exchange.send(to, ExchangeMessage::Finished { process });
        }
    }
    exchange.close();
}

/// Decides about groups.
struct Coordinator<'c, 'a> {
    replica: &'c Replica<'c>,
    plans: Vec<mpsc::Sender<GroupPlan>>,
    reports: mpsc::Receiver<()>,
    snapshots: &'c mut Option<(u64, SnapshotSink<'a>)>,
}

impl Coordinator<'_, '_> {
    fn run(&mut self, first: u64, limit: u64, group: u64) -> Result<()> {
        self.replica.check_restored()?;
        if self.replica.lock().is_stopped {
            return Ok(());
        }
        let mut next = first;
        while next < limit {
            let plan = GroupPlan {
                first: next,
                end: next.saturating_add(group).min(limit),
            };
            self.begin(plan);
            for plans in &self.plans {
                // A thread ends after this coordinator only.
                let _ = plans.send(plan);
            }
            for _ in &self.plans {
                let _ = self.reports.recv();
            }
            let is_over = {
                let state = self.replica.wait_for(plan.end);
                if state.failure.is_some() {
                    return Ok(());
                }
                state.is_stopped
            };
            self.end()?;
            if is_over {
                return Ok(());
            }
            next = plan.end;
        }
        Ok(())
    }

    fn begin(&self, plan: GroupPlan) {
        let mut state = self.replica.lock();
        state.count_coordination();
        state.group_began = None;
        for named in &mut state.variables.values {
            named.value.begin_group(plan.first);
        }
        state.counters.groups += 1;
        state.counters.coordination_messages += 2 * self.plans.len() as u64;
    }

    /// Completes a group: callbacks, then the snapshot.
    fn end(&mut self) -> Result<()> {
        let snapshot = {
            let mut state = self.replica.lock();
            let next = state.variables.next;
            for named in &mut state.variables.values {
                named.value.end_group(next);
            }
            match &self.snapshots {
                Some((every, _)) if state.counters.groups.is_multiple_of(*every) => {
                    Some(state.variables.snapshot()?)
                }
                _ => None,
            }
        };
        match (snapshot, &mut self.snapshots) {
            (Some(snapshot), Some((_, sink))) => sink(snapshot),
            _ => Ok(()),
        }
    }
}

impl ReplicaState {
    /// Adds the time between the end of the group before the last one and its first task.
    fn count_coordination(&mut self) {
        let first_of_group = self.group_began;
        if let (Some(began), Some(ended)) = (first_of_group, self.previous_end) {
            self.counters.coordination_time += began.saturating_duration_since(ended);
        }
        self.previous_end = self.applied_at.last().copied();
    }
}

fn report(mut state: ReplicaState, began: Instant) -> Result<IterationReport> {
    if let Some(failure) = state.failure {
        return Err(failure);
    }
    state.count_coordination();
    let mut last = began;
    let times = state.applied_at.iter().map(|at| {
        let time = at.saturating_duration_since(last);
        last = *at;
        time
    });
    let times: Vec<Duration> = times.collect();
    Ok(IterationReport {
        stop: match state.is_stopped {
            true => StopReason::Condition,
            false => StopReason::Count,
        },
        counters: state.counters,
        times,
        variables: state.variables,
    })
}
