//! All records of two bounded streams, key by key.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use ardea_core::{
    Inbox, Key, Ordinal, Outbox, Processor, Progress, RecordGuard, Result, Timestamp, Watermark,
};

use crate::keyed::{AllStates, KeyedStates};

/// How many groups a call of `complete` deals with at most.
const GROUPS_PER_CALL: usize = 1024;

/// The user's part of a [`CoGroupP`]; all instances share it.
#[derive(Clone, Debug)]
pub struct CoGroupLogic<LK, RK, F> {
    /// The key of a record of the first input: `Fn(&L) -> K`.
    pub left_key: LK,
    /// The key of a record of the second input: `Fn(&R) -> K`.
    pub right_key: RK,
    /// What comes of a key and all its records: `Fn(K, Vec<L>, Vec<R>) -> impl IntoIterator<Item = U>`.
    pub group: F,
}

/// Collects two bounded streams (inputs 0 and 1) by key and, at their end, emits what comes of each key.
///
/// Keys come in the order of their first record. A result has the latest event time of its records. Watermarks are
/// swallowed: what comes at the end would be late behind any of them. Both inputs must come by
/// [`Keyed`](ardea_core::Routing::Keyed) routing on the same key. Memory: all records.
///
/// ```
/// use std::sync::Arc;
/// use ardea_core::{Chunk, Inbox, Ordinal, Outbox, Processor, Rows, Timestamp};
/// use ardea_operators::{CoGroupLogic, CoGroupP};
///
/// let mut balance = CoGroupP::new(Arc::new(CoGroupLogic {
///     left_key: |paid: &(char, i64)| paid.0,
///     right_key: |owed: &(char, i64)| owed.0,
///     group: |key: char, paid: Vec<(char, i64)>, owed: Vec<(char, i64)>| {
///         let sum = |amounts: Vec<(char, i64)>| amounts.iter().map(|amount| amount.1).sum::<i64>();
///         Some((key, sum(paid) - sum(owed)))
///     },
/// }));
/// let mut outbox = Outbox::new(1, 16);
/// for (input, record) in [(Ordinal::FIRST, ('a', 5i64)), (Ordinal::SECOND, ('b', 3)), (Ordinal::SECOND, ('a', 1))] {
///     let mut inbox = Inbox::default();
///     inbox.fill(Chunk::new(Rows::from_iter([(record, Timestamp::MIN)])));
///     balance.process(input, &mut inbox, &mut outbox)?;
/// }
/// assert!(balance.complete(&mut outbox)?.done);
/// assert_eq!(outbox.lane::<(char, i64)>(Ordinal::FIRST)?.rows().values(), [('a', 4), ('b', -3)]);
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub struct CoGroupP<L, R, K, I: IntoIterator, LK, RK, F> {
    logic: Arc<CoGroupLogic<LK, RK, F>>,
    phase: Phase<L, R, K, I>,
    records: PhantomData<fn(L, R)>,
}

enum Phase<L, R, K, I: IntoIterator> {
    /// Collecting until both inputs have ended.
    Collecting(KeyedStates<K, Group<L, R>>),
    /// Emitting until no group is left; what the group at hand still has to emit, and its time.
    Emitting {
        groups: AllStates<K, Group<L, R>>,
        unfinished: Option<(I::IntoIter, Timestamp)>,
    },
}

struct Group<L, R> {
    left: Vec<L>,
    right: Vec<R>,
    latest: Timestamp,
}

impl<L, R> Default for Group<L, R> {
    fn default() -> Self {
        Group {
            left: Vec::new(),
            right: Vec::new(),
            latest: Timestamp::MIN,
        }
    }
}

impl<L, R, K, I, LK, RK, F> CoGroupP<L, R, K, I, LK, RK, F>
where
    K: Key,
    I: IntoIterator,
    LK: Fn(&L) -> K,
    RK: Fn(&R) -> K,
    F: Fn(K, Vec<L>, Vec<R>) -> I,
{
    /// By `logic`, which all instances share.
    pub fn new(logic: Arc<CoGroupLogic<LK, RK, F>>) -> Self {
        CoGroupP {
            logic,
            phase: Phase::Collecting(KeyedStates::default()),
            records: PhantomData,
        }
    }
}

/// Collects a chunk: `key` says whose each record is, `add` puts it on its side.
fn collect<T: Send + 'static, L, R, K: Key>(
    groups: &mut KeyedStates<K, Group<L, R>>,
    inbox: &mut Inbox,
    key: impl Fn(&T) -> K,
    add: impl Fn(&mut Group<L, R>, T),
) -> Result<()> {
    let mut guard = RecordGuard::new();
    for (record, time) in inbox.rows::<T>()?.drain_front(usize::MAX) {
        let slot = groups.slot_or_insert(key(&record), Group::default);
        if let Some((_, group)) = groups.get_mut(slot) {
            group.latest = group.latest.max(time);
            add(group, record);
        }
        guard.advance();
    }
    Ok(())
}

impl<L, R, K, I, LK, RK, F> Processor for CoGroupP<L, R, K, I, LK, RK, F>
where
    L: Send + 'static,
    R: Send + 'static,
    K: Key,
    I: IntoIterator<Item: Send + 'static, IntoIter: Send> + 'static,
    LK: Fn(&L) -> K + Send + Sync + 'static,
    RK: Fn(&R) -> K + Send + Sync + 'static,
    F: Fn(K, Vec<L>, Vec<R>) -> I + Send + Sync + 'static,
{
    fn process(&mut self, input: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        let Phase::Collecting(groups) = &mut self.phase else {
            return Ok(());
        };
        if input == Ordinal::FIRST {
            collect(groups, inbox, &self.logic.left_key, |group, record| {
                group.left.push(record)
            })
        } else {
            collect(groups, inbox, &self.logic.right_key, |group, record| {
                group.right.push(record)
            })
        }
    }

    fn on_watermark(&mut self, _: Watermark, _: &mut Outbox) -> Result<Progress> {
        Ok(Progress::DONE)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        if let Phase::Collecting(groups) = &mut self.phase {
            self.phase = Phase::Emitting {
                groups: groups.take_all(),
                unfinished: None,
            };
        }
        let Phase::Emitting { groups, unfinished } = &mut self.phase else {
            return Ok(Progress::DONE);
        };
        let mut lane = outbox.lane::<I::Item>(Ordinal::FIRST)?;
        let made = !lane.is_full();
        for _ in 0..GROUPS_PER_CALL {
            let Some((items, time)) = unfinished else {
                let Some((key, group)) = groups.next() else {
                    return Ok(Progress::DONE);
                };
                *unfinished = Some((
                    (self.logic.group)(key, group.left, group.right).into_iter(),
                    group.latest,
                ));
                continue;
            };
            while !lane.is_full() {
                match items.next() {
                    Some(item) => lane.push(item, *time),
                    None => {
                        *unfinished = None;
                        break;
                    }
                }
            }
            if lane.is_full() {
                break;
            }
        }
        Ok(Progress { made, done: false })
    }
}

impl<L, R, K, I: IntoIterator, LK, RK, F> fmt::Debug for CoGroupP<L, R, K, I, LK, RK, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::Collecting(_) => "collecting",
            Phase::Emitting { .. } => "emitting",
        };
        write!(f, "CoGroupP({phase})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{Drive, at};
    use std::iter::repeat_n;

    #[test]
    fn each_key_has_all_its_records_of_both_sides() {
        Drive::every_schedule(|drive| {
            let logic = CoGroupLogic {
                left_key: |n: &i64| n % 3,
                right_key: |text: &String| text.len() as i64,
                group: |key: i64, left: Vec<i64>, right: Vec<String>| {
                    repeat_n((key, left, right.len()), key as usize)
                },
            };
            let seen = drive
                .records((1..=9i64).map(|n| (n, at(n))))
                .watermark(Timestamp::MAX)
                .records_on(
                    Ordinal::SECOND,
                    ["aa", "bb", "cccc"].map(|text| (text.to_string(), at(5))),
                )
                .run::<(i64, Vec<i64>, usize)>(&mut CoGroupP::new(Arc::new(logic)));
            let mut expected = vec![((1, vec![1, 4, 7], 0), at(7))];
            expected.extend(repeat_n(((2, vec![2, 5, 8], 2), at(8)), 2));
            expected.extend(repeat_n(((4, vec![], 1), at(5)), 4));
            assert_eq!(seen.records(), expected);
        });
    }
}
