//! The observed history of a key or a ring buffer, and the check that it is linearizable.
//!
//! The search is that of Wing and Gong ("Testing and verifying concurrent objects", 1993), with
//! memoisation as by Lowe ("Testing for linearizability", 2017).

use std::collections::HashSet;
use std::time::Duration;

/// The capacity of a ring buffer.
pub const CAPACITY: u64 = 5;

/// An operation on a key, or on a ring buffer. Each value is written only once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HistoryOperation {
    Get,
    Put(u64),
    PutIfAbsent(u64),
    Replace {
        wanted: u64,
        value: u64,
    },
    Remove,
    Add(u64),
    /// Append to a ring buffer, which refuses it if it is full.
    Offer(u64),
    /// Append to a ring buffer, which drops its first value if it is full.
    Push(u64),
    /// Remove the first value of a ring buffer.
    Take,
    /// Read the first value of a ring buffer.
    Peek,
    /// The loss of all copies: the value may be lost.
    Lose,
}

/// The outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationResult {
    /// The operation was done, and returned this value; `None` if there was no value.
    Value(Option<u64>),
    /// The operation was done, and has no return value.
    Done,
    /// The outcome is unknown.
    Unknown,
}

/// An operation with its interval and outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryEvent {
    pub deed: HistoryOperation,
    pub began: Duration,
    pub ended: Duration,
    pub seen: OperationResult,
}

impl HistoryEvent {
    /// Returns the contents after the operation, if it was done on the contents `there`. Returns
    /// `None` if the observed outcome is impossible then. A key has at most one value, a ring
    /// buffer several in order.
    fn explain(&self, there: &[u64]) -> Option<Vec<u64>> {
        let had = there.first().copied();
        let one = |value: Option<u64>| value.into_iter().collect::<Vec<u64>>();
        let is_full = there.len() as u64 >= CAPACITY;
        let with = |from: usize, value: u64| [&there[from..], &[value]].concat();
        let (has, told) = match self.deed {
            HistoryOperation::Get | HistoryOperation::Peek => (there.to_vec(), had),
            HistoryOperation::Put(value) => (one(Some(value)), None),
            HistoryOperation::PutIfAbsent(value) => (one(had.or(Some(value))), had),
            HistoryOperation::Replace { wanted, value } => match had == Some(wanted) {
                true => (one(Some(value)), had),
                false => (one(had), had),
            },
            HistoryOperation::Remove => (one(None), had),
            HistoryOperation::Add(more) => {
                let sum = Some(had.unwrap_or(0) + more);
                (one(sum), sum)
            }
            HistoryOperation::Offer(_) if is_full => (there.to_vec(), None),
            HistoryOperation::Offer(value) => (with(0, value), Some(value)),
            HistoryOperation::Push(value) => (with(usize::from(is_full), value), Some(value)),
            HistoryOperation::Take => (there.get(1..).unwrap_or_default().to_vec(), had),
            HistoryOperation::Lose => (one(None), None),
        };
        match self.seen {
            OperationResult::Value(seen) => (seen == told).then_some(has),
            OperationResult::Done | OperationResult::Unknown => Some(has),
        }
    }

    /// Returns true if the effect of the operation may have been observed.
    fn may_show(&self, all: &[HistoryEvent]) -> bool {
        let value = match self.deed {
            HistoryOperation::Put(value)
            | HistoryOperation::PutIfAbsent(value)
            | HistoryOperation::Replace { value, .. } => value,
            _ => return true,
        };
        let shows = |event: &HistoryEvent| {
            event.seen == OperationResult::Value(Some(value))
                || matches!(event.deed, HistoryOperation::Replace { wanted, .. } if wanted == value)
        };
        all.iter().any(shows)
    }
}

/// The result of the check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Explained,
    Impossible,
    /// The check is too expensive.
    TooMuch,
}

/// Checks that the history is linearizable: each operation is done once, at a moment within its
/// interval. Operations with an unknown outcome are done at most once, at any moment after their
/// start.
pub fn explain(events: &[HistoryEvent], most: usize) -> Verdict {
    // Unknown operations without observers may not have been done, and are skipped.
    let counts = |event: &&HistoryEvent| {
        let reads = matches!(event.deed, HistoryOperation::Get | HistoryOperation::Peek);
        event.seen != OperationResult::Unknown || (!reads && event.may_show(events))
    };
    let mut events: Vec<HistoryEvent> = events.iter().filter(counts).copied().collect();
    events.sort_by_key(|event| event.began);
    let ends = |event: &HistoryEvent| match event.seen {
        OperationResult::Unknown => Duration::MAX,
        _ => event.ended,
    };
    let words = events.len().div_ceil(64).max(1);
    let mut been: HashSet<(Vec<u64>, Vec<u64>)> = HashSet::new();
    let mut open = vec![(vec![0_u64; words], Vec::new())];
    while let Some((done, there)) = open.pop() {
        let is_done = |at: usize| done[at / 64] & (1 << (at % 64)) != 0;
        let left = || (0..events.len()).filter(|at| !is_done(*at));
        if left().all(|at| events[at].seen == OperationResult::Unknown) {
            return Verdict::Explained;
        }
        if been.len() > most {
            return Verdict::TooMuch;
        }
        // The next operation must have started before the first of the remaining ones ended.
        let first_end = left()
            .map(|at| ends(&events[at]))
            .min()
            .unwrap_or(Duration::MAX);
        for at in left().take_while(|at| events[*at].began <= first_end) {
            if let Some(has) = events[at].explain(&there) {
                let mut next = done.clone();
                next[at / 64] |= 1 << (at % 64);
                if been.insert((next.clone(), has.clone())) {
                    open.push((next, has));
                }
            }
        }
    }
    Verdict::Impossible
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(
        deed: HistoryOperation,
        began: u64,
        ended: u64,
        seen: OperationResult,
    ) -> HistoryEvent {
        HistoryEvent {
            deed,
            began: Duration::from_millis(began),
            ended: Duration::from_millis(ended),
            seen,
        }
    }

    fn verdict(events: &[HistoryEvent]) -> Verdict {
        explain(events, 100_000)
    }

    #[test]
    fn what_happens_one_after_the_other_is_explained_in_that_order_only() {
        let put = event(HistoryOperation::Put(1), 0, 1, OperationResult::Done);
        let get = |began, seen| {
            event(
                HistoryOperation::Get,
                began,
                began + 1,
                OperationResult::Value(seen),
            )
        };
        assert_eq!(verdict(&[put, get(2, Some(1))]), Verdict::Explained);
        assert_eq!(verdict(&[put, get(2, None)]), Verdict::Impossible);
        let later = event(HistoryOperation::Put(2), 4, 5, OperationResult::Done);
        let back = [put, later, get(6, Some(2)), get(8, Some(1))];
        assert_eq!(verdict(&back), Verdict::Impossible);
    }

    #[test]
    fn what_nobody_knows_of_may_be_done_late_once_or_never() {
        let unknown = event(HistoryOperation::Put(1), 0, 1, OperationResult::Unknown);
        let get = |began, seen| {
            event(
                HistoryOperation::Get,
                began,
                began + 1,
                OperationResult::Value(seen),
            )
        };
        assert_eq!(verdict(&[unknown, get(5, None)]), Verdict::Explained);
        assert_eq!(
            verdict(&[unknown, get(5, None), get(9, Some(1))]),
            Verdict::Explained
        );
        let twice = [
            unknown,
            get(5, Some(1)),
            event(
                HistoryOperation::Remove,
                7,
                8,
                OperationResult::Value(Some(1)),
            ),
            get(9, Some(1)),
        ];
        assert_eq!(verdict(&twice), Verdict::Impossible);
        let added = event(HistoryOperation::Add(4), 0, 1, OperationResult::Unknown);
        assert_eq!(
            verdict(&[
                added,
                event(
                    HistoryOperation::Add(1),
                    2,
                    3,
                    OperationResult::Value(Some(5))
                )
            ]),
            Verdict::Explained
        );
        assert_eq!(
            verdict(&[
                added,
                event(
                    HistoryOperation::Add(1),
                    2,
                    3,
                    OperationResult::Value(Some(9))
                )
            ]),
            Verdict::Impossible
        );
    }

    #[test]
    fn what_is_under_way_together_may_be_done_in_any_order() {
        let together = [
            event(
                HistoryOperation::PutIfAbsent(1),
                0,
                10,
                OperationResult::Value(Some(2)),
            ),
            event(
                HistoryOperation::PutIfAbsent(2),
                0,
                10,
                OperationResult::Value(None),
            ),
            event(
                HistoryOperation::Replace {
                    wanted: 2,
                    value: 3,
                },
                5,
                12,
                OperationResult::Value(Some(2)),
            ),
            event(
                HistoryOperation::Get,
                13,
                14,
                OperationResult::Value(Some(3)),
            ),
        ];
        assert_eq!(verdict(&together), Verdict::Explained);
        let both = [
            event(
                HistoryOperation::PutIfAbsent(1),
                0,
                10,
                OperationResult::Value(None),
            ),
            event(
                HistoryOperation::PutIfAbsent(2),
                0,
                10,
                OperationResult::Value(None),
            ),
        ];
        assert_eq!(verdict(&both), Verdict::Impossible);
    }

    #[test]
    fn values_of_a_ring_go_in_their_order_and_once() {
        let offer = |value, began| {
            event(
                HistoryOperation::Offer(value),
                began,
                began + 1,
                OperationResult::Value(Some(value)),
            )
        };
        let take = |began, seen| {
            event(
                HistoryOperation::Take,
                began,
                began + 1,
                OperationResult::Value(seen),
            )
        };
        let both = [offer(1, 0), offer(2, 2)];
        let and = |more: &[HistoryEvent]| verdict(&[&both[..], more].concat());
        assert_eq!(
            and(&[take(4, Some(1)), take(6, Some(2)), take(8, None)]),
            Verdict::Explained
        );
        assert_eq!(and(&[take(4, Some(2))]), Verdict::Impossible);
        assert_eq!(
            and(&[take(4, Some(1)), take(6, Some(1))]),
            Verdict::Impossible
        );
        let lost = event(HistoryOperation::Take, 4, 5, OperationResult::Unknown);
        assert_eq!(and(&[lost, take(6, Some(2))]), Verdict::Explained);
        assert_eq!(
            and(&[lost, take(6, Some(1)), take(8, Some(2))]),
            Verdict::Explained
        );
    }

    #[test]
    fn a_full_ring_refuses_or_lets_the_first_value_go() {
        let mut events: Vec<HistoryEvent> = (0..CAPACITY)
            .map(|n| {
                event(
                    HistoryOperation::Push(n),
                    2 * n,
                    2 * n + 1,
                    OperationResult::Value(Some(n)),
                )
            })
            .collect();
        events.push(event(
            HistoryOperation::Offer(90),
            20,
            21,
            OperationResult::Value(None),
        ));
        events.push(event(
            HistoryOperation::Push(91),
            22,
            23,
            OperationResult::Value(Some(91)),
        ));
        events.push(event(
            HistoryOperation::Peek,
            24,
            25,
            OperationResult::Value(Some(1)),
        ));
        assert_eq!(verdict(&events), Verdict::Explained);
        events.push(event(
            HistoryOperation::Peek,
            26,
            27,
            OperationResult::Value(Some(0)),
        ));
        assert_eq!(verdict(&events), Verdict::Impossible);
    }
}
