//! At-least-once: which records have been dealt with to the end, by one number a record.
//!
//! A spout emits a record under a random 64-bit root; each tuple that comes of it, anywhere, has a random 64-bit id. The acker keeps, for
//! each root, the XOR of the ids of all tuples that were made and of all that were dealt with. Each id comes in twice, so that
//! the number is zero when, and but for a chance of 2⁻⁶⁴ only when, all have been dealt with; in which order the messages
//! come is of no matter. That is Storm's and Heron's way ("Twitter Heron", ICDE 2017, §II and VI, acks; Storm's
//! documentation, "Guaranteeing message processing").
//!
//! Time-outs cost nothing per root: roots are in buckets by age, and the oldest bucket is dropped as a whole.

use std::collections::VecDeque;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

/// The random id of a record that a spout emitted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RootId(pub u64);

/// Which spout emitted it; numbered by whoever runs the acker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpoutId(pub u32);

/// A spout has emitted a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Emitted {
    /// Its root.
    pub root: RootId,
    /// The XOR of the ids of the tuples that it was emitted as.
    pub xor: u64,
    /// Who emitted it.
    pub spout: SpoutId,
}

/// A bolt has dealt with a tuple.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Acked {
    /// The root that the tuple came of; a tuple that came of several is acked to each.
    pub root: RootId,
    /// The XOR of its id and of those of the tuples that the bolt has emitted for it. Several acks of one root may be sent as one:
    /// the XOR of theirs.
    pub xor: u64,
}

/// What happens to an acker. Batches, because it happens often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckerEvent<'a> {
    /// Spouts have emitted.
    Emitted(&'a [Emitted]),
    /// Bolts have dealt with tuples.
    Acked(&'a [Acked]),
    /// Bolts have failed on tuples of these roots.
    Failed(&'a [RootId]),
    /// Time has passed; comes at least every tenth of the time-out.
    Tick,
}

/// What became of a record: told to its spout once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Its root.
    pub root: RootId,
    /// Who emitted it.
    pub spout: SpoutId,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All that came of it has been dealt with; so long after the acker heard that it was emitted.
    Complete(Duration),
    /// A bolt has failed on it.
    Failed,
    /// It was not dealt with in time.
    TimedOut,
}

/// Keeps account of the records that are being dealt with.
///
/// Every root that was emitted is told exactly once, in the order in which they complete. What comes for a root after that
/// is dropped. Constant time and no allocation per message, except that the tables grow with the number of roots under way (32 bytes a root).
///
/// ```
/// use std::time::Duration;
/// use ardea_control::{Acked, Acker, AckerEvent, Emitted, Outcome, RootId, SpoutId};
///
/// let mut acker = Acker::new(Duration::from_secs(30));
/// let (root, spout) = (RootId(7), SpoutId(0));
/// let (word, count) = (0x5eed, 0xfeed); // random in earnest
/// let mut told = Vec::new();
/// acker.on(Duration::ZERO, AckerEvent::Emitted(&[Emitted { root, xor: word, spout }]), &mut told);
/// acker.on(Duration::ZERO, AckerEvent::Acked(&[Acked { root, xor: word ^ count }]), &mut told);
/// assert!(told.is_empty(), "`count` is still under way");
/// acker.on(Duration::from_millis(2), AckerEvent::Acked(&[Acked { root, xor: count }]), &mut told);
/// assert_eq!(told[0].outcome, Outcome::Complete(Duration::from_millis(2)));
/// ```
#[derive(Debug)]
pub struct Acker {
    /// The youngest first.
    buckets: VecDeque<Bucket>,
    rotate_every: Duration,
    rotate_at: Option<Duration>,
}

type Bucket = HashMap<RootId, Tree, FixedState>;

/// What is under way of a root.
#[derive(Clone, Copy, Debug, Default)]
struct Tree {
    xor: u64,
    /// Who emitted it, and when; unknown as long as acks only have come.
    emitted: Option<(SpoutId, Duration)>,
    failed: bool,
}

/// A root times out after the time-out and before this share more of it: 1 / ([`BUCKETS`] - 1).
const BUCKETS: usize = 4;

impl Acker {
    /// An acker that gives a record up after `timeout`, at the latest a third of that later.
    pub fn new(timeout: Duration) -> Self {
        Acker {
            buckets: (0..BUCKETS).map(|_| Bucket::default()).collect(),
            rotate_every: timeout / (BUCKETS as u32 - 1),
            rotate_at: None,
        }
    }

    /// The number of roots under way, those included that only acks are known of.
    pub fn len(&self) -> usize {
        self.buckets.iter().map(HashMap::len).sum()
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Deals with an event; what became of records is appended to `told`.
    pub fn on(&mut self, now: Duration, event: AckerEvent<'_>, told: &mut Vec<Completion>) {
        self.rotate(now, told);
        match event {
            AckerEvent::Emitted(batch) => batch.iter().for_each(|e| self.emitted(now, e, told)),
            AckerEvent::Acked(batch) => {
                for Acked { root, xor } in batch {
                    self.change(now, *root, |tree| tree.xor ^= xor, told);
                }
            }
            AckerEvent::Failed(batch) => {
                for root in batch {
                    self.change(now, *root, |tree| tree.failed = true, told);
                }
            }
            AckerEvent::Tick => {}
        }
    }

    fn emitted(&mut self, now: Duration, emitted: &Emitted, told: &mut Vec<Completion>) {
        let Emitted { root, xor, spout } = *emitted;
        // What came before it may lie in an older bucket; its time begins now.
        let mut tree = self.take(root).unwrap_or_default();
        tree.xor ^= xor;
        tree.emitted.get_or_insert((spout, now));
        if !tell(now, root, &tree, told) {
            self.buckets[0].insert(root, tree);
        }
    }

    fn take(&mut self, root: RootId) -> Option<Tree> {
        self.buckets
            .iter_mut()
            .find_map(|bucket| bucket.remove(&root))
    }

    #[inline]
    fn change(
        &mut self,
        now: Duration,
        root: RootId,
        change: impl Fn(&mut Tree),
        told: &mut Vec<Completion>,
    ) {
        for bucket in &mut self.buckets {
            if let Some(tree) = bucket.get_mut(&root) {
                change(tree);
                if tell(now, root, tree, told) {
                    bucket.remove(&root);
                }
                return;
            }
        }
        // Overtook the word that it was emitted; or came too late, and is forgotten with its bucket.
        let mut tree = Tree::default();
        change(&mut tree);
        self.buckets[0].insert(root, tree);
    }

    fn rotate(&mut self, now: Duration, told: &mut Vec<Completion>) {
        let mut rotate_at = *self.rotate_at.get_or_insert(now + self.rotate_every);
        for _ in 0..BUCKETS {
            if now < rotate_at {
                break;
            }
            let Some(mut oldest) = self.buckets.pop_back() else {
                break;
            };
            let begin = told.len();
            told.extend(oldest.drain().filter_map(|(root, tree)| {
                let (spout, _) = tree.emitted?;
                Some(Completion {
                    root,
                    spout,
                    outcome: Outcome::TimedOut,
                })
            }));
            // The table's order is nobody's business: the same events give the same answers.
            told[begin..].sort_unstable_by_key(|completion| completion.root);
            self.buckets.push_front(oldest);
            rotate_at += self.rotate_every;
        }
        // After a long sleep all buckets have been emptied, and time begins anew.
        self.rotate_at = Some(match now < rotate_at {
            true => rotate_at,
            false => now + self.rotate_every,
        });
    }
}

/// Tells what became of the root, if that is known.
#[inline]
fn tell(now: Duration, root: RootId, tree: &Tree, told: &mut Vec<Completion>) -> bool {
    let Some((spout, since)) = tree.emitted else {
        return false;
    };
    let outcome = match (tree.failed, tree.xor) {
        (true, _) => Outcome::Failed,
        (false, 0) => Outcome::Complete(now.saturating_sub(since)),
        (false, _) => return false,
    };
    told.push(Completion {
        root,
        spout,
        outcome,
    });
    true
}

/// Ids for roots and tuples: random enough never to meet, cheap (SplitMix64: Steele, Lea, Flood, "Fast splittable
/// pseudorandom number generators", OOPSLA 2014). Within one generator no id comes twice in 2⁶⁴.
#[derive(Clone, Debug)]
pub struct TupleIds(u64);

impl TupleIds {
    /// A generator; give each a random seed of its own.
    pub const fn new(seed: u64) -> Self {
        TupleIds(seed)
    }

    /// The next id; never zero, which would leave no trace in a XOR.
    #[inline]
    pub fn next_id(&mut self) -> u64 {
        loop {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            if z != 0 {
                return z;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap as Map;

    const SPOUT: SpoutId = SpoutId(3);

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn emit(acker: &mut Acker, now: Duration, root: RootId, xor: u64) -> Vec<Completion> {
        let emitted = Emitted {
            root,
            xor,
            spout: SPOUT,
        };
        let mut told = Vec::new();
        acker.on(now, AckerEvent::Emitted(&[emitted]), &mut told);
        told
    }

    fn at(acker: &mut Acker, now: Duration, event: AckerEvent<'_>) -> Vec<Completion> {
        let mut told = Vec::new();
        acker.on(now, event, &mut told);
        told
    }

    #[test]
    fn an_ack_may_overtake_the_word_that_its_root_was_emitted() {
        let mut acker = Acker::new(seconds(30));
        let root = RootId(1);
        let acked = [Acked { root, xor: 42 }];
        assert_eq!(at(&mut acker, seconds(0), AckerEvent::Acked(&acked)), []);
        let told = emit(&mut acker, seconds(1), root, 42);
        assert_eq!(told[0].outcome, Outcome::Complete(Duration::ZERO));
        assert!(acker.is_empty());
    }

    #[test]
    fn a_root_that_fails_is_told_once_whatever_comes_after() {
        let mut acker = Acker::new(seconds(30));
        let root = RootId(1);
        emit(&mut acker, seconds(0), root, 42);
        let told = at(&mut acker, seconds(1), AckerEvent::Failed(&[root, root]));
        let failed = Completion {
            root,
            spout: SPOUT,
            outcome: Outcome::Failed,
        };
        assert_eq!(told, [failed]);
        let acked = [Acked { root, xor: 42 }];
        assert_eq!(at(&mut acker, seconds(1), AckerEvent::Acked(&acked)), []);
        for second in 2..100 {
            assert_eq!(at(&mut acker, seconds(second), AckerEvent::Tick), []);
        }
        assert!(acker.is_empty());
    }

    #[test]
    fn a_root_times_out_between_the_time_out_and_a_third_more() {
        for start in 0..10 {
            let mut acker = Acker::new(seconds(30));
            at(&mut acker, seconds(0), AckerEvent::Tick);
            emit(&mut acker, seconds(start), RootId(1), 42);
            let ticks = (start..start + 60).map(seconds);
            let told: Vec<_> = ticks
                .filter(|now| !at(&mut acker, *now, AckerEvent::Tick).is_empty())
                .map(|now| now - seconds(start))
                .collect();
            assert!(matches!(&told[..], [after] if (seconds(30)..=seconds(40)).contains(after)));
        }
    }

    #[test]
    fn after_a_long_sleep_everything_has_timed_out_once() {
        let mut acker = Acker::new(seconds(30));
        for root in 0..100 {
            emit(&mut acker, seconds(root % 25), RootId(root), 42);
        }
        let told = at(&mut acker, seconds(10_000), AckerEvent::Tick);
        assert_eq!(told.len(), 100);
        assert!(acker.is_empty());
    }

    /// What may happen to a tuple tree: a list of (tuple, children), every tuple acked once, in any order.
    fn tree(ids: &mut TupleIds, shape: &[usize]) -> (u64, Vec<u64>) {
        let mut open = vec![ids.next_id()];
        let first = open[0];
        let mut acks = Vec::new();
        let mut shape = shape.iter();
        while let Some(tuple) = open.pop() {
            let children: Vec<_> = (0..*shape.next().unwrap_or(&0))
                .map(|_| ids.next_id())
                .collect();
            acks.push(children.iter().fold(tuple, |xor, child| xor ^ child));
            open.extend(children);
        }
        (first, acks)
    }

    proptest! {
        #[test]
        fn a_root_completes_with_its_last_message_in_whatever_order_they_come(
            shapes in prop::collection::vec(prop::collection::vec(0..4usize, 0..12), 1..20),
            seed in any::<u64>(),
            order in any::<u64>(),
        ) {
            let mut ids = TupleIds::new(seed);
            let mut messages = Vec::new();
            let mut left = Map::new();
            for (root, shape) in shapes.iter().enumerate() {
                let root = RootId(root as u64);
                let (first, acks) = tree(&mut ids, shape);
                left.insert(root, acks.len() + 1);
                messages.push((root, Some(first), 0));
                messages.extend(acks.into_iter().map(|ack| (root, None, ack)));
            }
            let mut order = TupleIds::new(order);
            messages.sort_by_cached_key(|_| order.next_id());
            let mut acker = Acker::new(seconds(30));
            for (root, emitted, xor) in messages {
                let told = match emitted {
                    Some(first) => emit(&mut acker, seconds(1), root, first),
                    None => at(&mut acker, seconds(1), AckerEvent::Acked(&[Acked { root, xor }])),
                };
                let left = left.get_mut(&root).unwrap();
                *left -= 1;
                prop_assert_eq!(told.len(), usize::from(*left == 0));
            }
            prop_assert!(acker.is_empty());
        }
    }
}
