//! Iterations in one process: results, stop conditions, groups, snapshots and faults.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ardea_core::{Error, ErrorCode, Result};
use ardea_iteration::{
    Counter, Dataset, Highest, Iterate, IterationReport, Merge, Replicated, SharedVariable,
    Snapshot, SparseVector, StopReason, Total, Variable, VariableFault, Variables, Vector,
    VectorUpdate,
};
use serde::{Deserialize, Serialize};

/// Numbers whose sum depends on the order of additions.
fn numbers(count: usize) -> Vec<f64> {
    (1..=count).map(|n| 1.0 / (n * n) as f64).collect()
}

/// Adds numbers to a vector of three components with a scale that depends on its value.
fn feedback(
    threads: u32,
    group: u64,
    iterations: u64,
    restored: Option<&Snapshot>,
    sink: &mut dyn FnMut(Snapshot) -> Result<()>,
) -> Result<(Vec<f64>, IterationReport)> {
    let dataset = Dataset::split(numbers(1000), 7)?;
    let mut variables = Variables::new();
    let vector = variables.add("vector", Vector::zeros(3))?;
    if let Some(snapshot) = restored {
        variables.restore(snapshot)?;
    }
    let report = Iterate::new(variables)
        .threads(threads)
        .group(group)
        .iterations(iterations)
        .snapshots(NonZeroU32::MIN, sink)
        .run(&dataset, |task| {
            let current = task.get(&vector)?;
            let mut update = vec![0.0; 3];
            for (position, number) in task.partition().iter().enumerate() {
                let at = position % 3;
                update[at] += number * (1.0 - current.as_slice()[at] * 0.3);
            }
            task.commit(&vector, VectorUpdate::Dense(update))
        })?;
    let numbers = report.value(&vector)?.as_slice().to_vec();
    Ok((numbers, report))
}

fn drop_snapshots(_: Snapshot) -> Result<()> {
    Ok(())
}

#[test]
fn results_are_the_same_to_the_bit_for_any_number_of_threads_and_group_size() {
    let (expected, _) = feedback(1, 1, 30, None, &mut drop_snapshots).unwrap();
    for (threads, group) in [(2, 10), (3, 7), (4, 30), (16, 100)] {
        let (numbers, report) = feedback(threads, group, 30, None, &mut drop_snapshots).unwrap();
        assert_eq!(numbers, expected, "{threads} threads, groups of {group}");
        assert_eq!(report.iterations(), 30);
        assert_eq!(report.iteration_times().len(), 30);
        assert_eq!(report.stop_reason(), StopReason::Count);
    }
}

#[test]
fn a_group_needs_one_plan_and_one_report_per_thread() {
    let (_, one) = feedback(2, 1, 100, None, &mut drop_snapshots).unwrap();
    let (_, ten) = feedback(2, 10, 100, None, &mut drop_snapshots).unwrap();
    assert_eq!((one.counters().groups, ten.counters().groups), (100, 10));
    assert_eq!(one.counters().coordination_messages, 400);
    assert_eq!(ten.counters().coordination_messages, 40);
}

#[test]
fn a_run_continues_from_a_snapshot_with_the_same_results() {
    let snapshots = Mutex::new(Vec::new());
    let mut sink = |snapshot: Snapshot| {
        snapshots.lock().unwrap().push(snapshot.to_bytes()?);
        Ok(())
    };
    let (expected, _) = feedback(2, 10, 30, None, &mut sink).unwrap();
    let snapshots = snapshots.into_inner().unwrap();
    assert_eq!(snapshots.len(), 3);
    let second = Snapshot::from_bytes(&snapshots[1]).unwrap();
    assert_eq!(second.iterations(), 20);
    let (numbers, report) = feedback(3, 10, 30, Some(&second), &mut drop_snapshots).unwrap();
    assert_eq!(numbers, expected);
    assert_eq!(report.iteration_times().len(), 10);
}

#[test]
fn a_run_that_had_ended_does_not_continue_from_its_last_snapshot() {
    let run = |restored: Option<&Snapshot>| {
        let dataset = Dataset::split(vec![1, 2, 3], 3).unwrap();
        let mut variables = Variables::new();
        let count = variables.add("count", Replicated(Counter(0))).unwrap();
        if let Some(snapshot) = restored {
            variables.restore(snapshot).unwrap();
        }
        let (tasks, mut last) = (AtomicU64::new(0), None);
        let report = Iterate::new(variables)
            .group(4)
            .iterations(1_000)
            .until(|values| Ok(values.get(&count)?.0.0 >= 18))
            .snapshots(NonZeroU32::MIN, |snapshot| {
                last = Some(snapshot);
                Ok(())
            })
            .run(&dataset, |task| {
                tasks.fetch_add(1, Ordering::Relaxed);
                task.get(&count)?;
                task.commit(&count, Counter(1))
            })
            .unwrap();
        assert_eq!(report.stop_reason(), StopReason::Condition);
        assert_eq!(report.iterations(), 6);
        assert_eq!(report.value(&count).unwrap().0, Counter(18));
        (tasks.into_inner(), last)
    };
    let (tasks, last) = run(None);
    assert!(tasks >= 18);
    let last = last.unwrap();
    assert_eq!(last.iterations(), 6);
    assert_eq!(run(Some(&last)).0, 0);
}

#[test]
fn a_failed_sink_of_snapshots_ends_the_run() {
    let mut sink = |_| Err(Error::new(ErrorCode::DiskFull, "no space left"));
    let error = feedback(2, 10, 30, None, &mut sink).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DiskFull);
}

#[test]
fn a_snapshot_of_other_variables_is_refused() {
    let mut before = Variables::new();
    before.add("a", Replicated(Counter(1))).unwrap();
    let mut after = Variables::new();
    after.add("b", Replicated(Counter(1))).unwrap();
    let error = after.restore(&before.snapshot().unwrap()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
}

#[test]
fn counters_maps_and_extremes_are_merged() {
    let words = ["to", "be", "or", "not", "to", "be"];
    let dataset = Dataset::split(words.to_vec(), 4).unwrap();
    let mut variables = Variables::new();
    let counts = variables
        .add("counts", Replicated(BTreeMap::new()))
        .unwrap();
    let longest = variables
        .add("longest", Replicated(Highest(0_usize)))
        .unwrap();
    let report = Iterate::new(variables)
        .threads(2)
        .iterations(3)
        .run(&dataset, |task| {
            for word in task.partition() {
                let count = BTreeMap::from([(word.to_string(), Counter(1))]);
                task.commit(&counts, count)?;
                task.commit(&longest, Highest(word.len()))?;
            }
            Ok(())
        })
        .unwrap();
    let counts = report.value(&counts).unwrap();
    let expected = [("be", 6), ("not", 3), ("or", 3), ("to", 6)];
    assert!(
        counts
            .0
            .iter()
            .map(|(word, count)| (&**word, count.0))
            .eq(expected)
    );
    assert_eq!(report.value(&longest).unwrap().0, Highest(3));
}

#[test]
fn a_condition_ends_the_run_within_a_group() {
    let dataset = Dataset::split(vec![1, 2, 3], 3).unwrap();
    let mut variables = Variables::new();
    let count = variables.add("count", Replicated(Counter(0))).unwrap();
    let report = Iterate::new(variables)
        .threads(3)
        .group(100)
        .iterations(1_000)
        .until(|values| Ok(values.get(&count)?.0.0 >= 9))
        .run(&dataset, |task| {
            task.get(&count)?;
            task.commit(&count, Counter(1))
        })
        .unwrap();
    assert_eq!(report.stop_reason(), StopReason::Condition);
    assert_eq!(report.iterations(), 3);
    assert_eq!(report.value(&count).unwrap().0, Counter(9));
}

#[test]
fn tasks_that_do_not_wait_run_ahead_and_lose_no_update() {
    let dataset = Dataset::split((0..8).collect(), 8).unwrap();
    let mut variables = Variables::new();
    let count = variables.add("count", Replicated(Counter(0))).unwrap();
    let most_seen = AtomicU64::new(0);
    let report = Iterate::new(variables)
        .threads(4)
        .group(20)
        .iterations(60)
        .run(&dataset, |task| {
            most_seen.fetch_max(task.get_latest(&count)?.0.0, Ordering::Relaxed);
            task.commit(&count, Counter(1))
        })
        .unwrap();
    assert_eq!(report.value(&count).unwrap().0, Counter(480));
    assert!(
        most_seen.into_inner() >= 320,
        "the updates of two groups are there"
    );
}

/// A variable that records its callbacks.
#[derive(Clone, Serialize, Deserialize)]
struct Recorded(Vec<(String, u64)>);

impl SharedVariable for Recorded {
    type Update = Counter;

    fn apply(&mut self, update: Counter) {
        self.0.push(("apply".into(), update.0));
    }

    fn begin_group(&mut self, first: u64) {
        self.0.push(("begin".into(), first));
    }

    fn end_group(&mut self, next: u64) {
        self.0.push(("end".into(), next));
    }
}

#[test]
fn variables_are_called_at_the_begin_and_end_of_groups() {
    let dataset = Dataset::split(vec![0, 1], 2).unwrap();
    let mut variables = Variables::new();
    let recorded = variables.add("recorded", Recorded(Vec::new())).unwrap();
    let report = Iterate::new(variables)
        .group(2)
        .iterations(3)
        .run(&dataset, |task| task.commit(&recorded, Counter(5)))
        .unwrap();
    let calls = &report.value(&recorded).unwrap().0;
    let calls: Vec<_> = calls
        .iter()
        .map(|(name, number)| (&**name, *number))
        .collect();
    assert_eq!(
        calls,
        [
            ("begin", 0),
            ("apply", 10),
            ("apply", 10),
            ("end", 2),
            ("begin", 2),
            ("apply", 10),
            ("end", 3)
        ]
    );
}

fn run_vector(function: impl Fn(u64, usize) -> VectorUpdate + Sync) -> Result<IterationReport> {
    let dataset = Dataset::split(vec![0, 1, 2], 3)?;
    let mut variables = Variables::new();
    let model: Variable<Vector> = variables.add("model", Vector::zeros(5))?;
    Iterate::new(variables)
        .threads(2)
        .iterations(10)
        .run(&dataset, |task| {
            task.get(&model)?;
            let update = function(task.iteration(), task.partition_index());
            task.commit(&model, update)
        })
}

#[test]
fn a_number_that_is_not_finite_ends_the_run_with_its_place() {
    let error = run_vector(|iteration, partition| {
        let bad = iteration == 4 && partition == 2;
        let number = if bad { f64::NAN } else { 1.0 };
        let sparse = SparseVector::new(5, vec![1, 3], vec![1.0, number]);
        VectorUpdate::Sparse(sparse.unwrap())
    })
    .unwrap_err();
    assert_eq!(error.code(), ErrorCode::UserError);
    assert_eq!(
        error.to_string(),
        "ARD-202: the update of the variable \"model\" is invalid in iteration 4, partition 2: \
         component 3 is NaN; check the input and reduce the step size"
    );
    let error =
        run_vector(|_, _| VectorUpdate::Dense(vec![0.0, 0.0, f64::MAX, 0.0, 0.0])).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("\"model\" is invalid after iteration 0: component 2 is inf"),
        "{error}"
    );
}

#[test]
fn an_update_of_another_size_ends_the_run() {
    let error =
        run_vector(|_, partition| VectorUpdate::Dense(vec![0.0; 5 + partition / 2])).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("partition 2: the update has 6 components instead of 5"),
        "{error}"
    );
}

#[test]
fn settings_are_refused_before_anything_runs() {
    let refused = |change: fn(Iterate<'_>) -> Iterate<'_>| {
        let dataset = Dataset::split(vec![0], 1).unwrap();
        let runs = AtomicU64::new(0);
        let error = change(Iterate::new(Variables::new()))
            .run(&dataset, |_| {
                runs.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob);
        assert_eq!(runs.into_inner(), 0);
    };
    refused(|iterate| iterate.iterations(1).group(0));
    refused(|iterate| iterate.iterations(1).threads(0));
    refused(|iterate| iterate);
    let mut variables = Variables::new();
    variables.add("a", Replicated(Total(0.0))).unwrap();
    let error = variables.add("a", Replicated(Total(0.0))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
    let error = variables.add("b", Vector::new(vec![f64::NAN])).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
}

#[test]
fn errors_and_panics_of_the_function_end_the_run() {
    let run = |function: fn(u64) -> Result<()>| {
        let dataset = Dataset::split(vec![0, 1, 2, 3], 4).unwrap();
        let mut variables = Variables::new();
        let count = variables.add("count", Replicated(Counter(0))).unwrap();
        Iterate::new(variables)
            .threads(4)
            .iterations(100)
            .run(&dataset, |task| {
                task.get(&count)?;
                if task.partition_index() == 1 {
                    function(task.iteration())?;
                }
                task.commit(&count, Counter(1))
            })
            .unwrap_err()
    };
    let error = run(|iteration| match iteration {
        5 => Err(Error::new(ErrorCode::ReadFailed, "the disk is gone")),
        _ => Ok(()),
    });
    assert_eq!(error.code(), ErrorCode::ReadFailed);
    let error = run(|iteration| match iteration {
        5 => panic!("out of ideas"),
        _ => Ok(()),
    });
    assert_eq!(error.code(), ErrorCode::UserPanic);
    assert!(
        error.to_string().contains("iteration 5, partition 1"),
        "{error}"
    );
}

#[test]
fn a_variable_of_another_iteration_is_refused() {
    let dataset = Dataset::split(vec![0], 1).unwrap();
    let mut other = Variables::new();
    let foreign = other.add("count", Replicated(Counter(0))).unwrap();
    let mut variables = Variables::new();
    variables.add("sum", Replicated(Total(0.0))).unwrap();
    let run = Iterate::new(variables).iterations(1);
    let error = run
        .run(&dataset, |task| task.commit(&foreign, Counter(1)))
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidJob);
}

/// A user-defined merge: the two smallest numbers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct TwoSmallest(Vec<u32>);

impl Merge for TwoSmallest {
    fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
        self.0.sort_unstable();
        self.0.truncate(2);
    }

    fn fault(&self) -> Option<VariableFault> {
        let expected = 2;
        (self.0.len() > expected).then_some(VariableFault::WrongSize {
            expected,
            found: self.0.len(),
        })
    }
}

#[test]
fn merges_may_be_defined_by_the_user() {
    ardea_iteration::laws::check_merge(
        &TwoSmallest(vec![3, 9]),
        &TwoSmallest(vec![4]),
        &TwoSmallest(vec![1, 2]),
    )
    .unwrap();
    let dataset = Dataset::split(vec![50, 20, 90, 30, 80, 10], 3).unwrap();
    let mut variables = Variables::new();
    let smallest = variables
        .add("smallest", Replicated(TwoSmallest(Vec::new())))
        .unwrap();
    let report = Iterate::new(variables)
        .threads(3)
        .iterations(1)
        .run(&dataset, |task| {
            for number in task.partition() {
                task.commit(&smallest, TwoSmallest(vec![*number]))?;
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(
        report.value(&smallest).unwrap().0,
        TwoSmallest(vec![10, 20])
    );
}
