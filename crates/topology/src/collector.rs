//! The collector of bolts, for emitting, acking and failing tuples.

use ardea_core::{DeadLetter, InstanceContext, OnError, RecordGuard, Result};

use crate::ack_batcher::AckBatcher;
use crate::anchor::{Anchor, Root};
use crate::call_budget::CallBudget;
use crate::emitter::{Emitter, To};
use crate::encode::Values;
use crate::failure::{Failure, Outcome};
use crate::tuple::{Tuple, Tuples};

/// A held tuple: neither acked nor failed until it is passed to [`Collector::ack`] or
/// [`Collector::fail`].
///
/// If a held tuple is dropped, it is never acked, and the spout's tuple that it was derived from
/// times out.
#[derive(Debug)]
#[must_use = "a held tuple has to be acked or failed"]
pub struct PendingTuple(Anchors);

/// The anchors of a held tuple; usually a single one, which needs no allocation.
#[derive(Debug)]
enum Anchors {
    None,
    One(Anchor),
    Many(Box<[Anchor]>),
}

impl PendingTuple {
    /// Returns `tuple` as a held one.
    pub(crate) fn of(tuple: &Tuple<'_>) -> Self {
        let salt = tuple.origin.salt;
        PendingTuple(match tuple.anchors {
            [] => Anchors::None,
            [only] => Anchors::One(only.delivered(salt)),
            many => Anchors::Many(many.iter().map(|a| a.delivered(salt)).collect()),
        })
    }

    fn anchors(&self) -> &[Anchor] {
        match &self.0 {
            Anchors::None => &[],
            Anchors::One(anchor) => std::slice::from_ref(anchor),
            Anchors::Many(anchors) => anchors,
        }
    }
}

/// The state of a bolt instance's collector between calls.
#[derive(Debug)]
pub(crate) struct AckBookkeeping {
    pub(crate) emitter: Emitter,
    pub(crate) ack_batcher: AckBatcher,
    /// The anchors of the tuples that are being emitted.
    current: Vec<Anchor>,
    /// The positions of failed or held tuples in the current batch.
    excepted: Vec<usize>,
    /// The failed tuples with the reasons, in a process of its own: its host handles them.
    pub(crate) failed: Option<Vec<(Root, String)>>,
}

impl AckBookkeeping {
    pub(crate) fn new(emitter: Emitter, postman: AckBatcher) -> Self {
        AckBookkeeping {
            emitter,
            ack_batcher: postman,
            current: Vec::new(),
            excepted: Vec::new(),
            failed: None,
        }
    }
}

/// The receiver of a bolt's emitted tuples, and of acks and failures of its input tuples.
#[derive(Debug)]
pub struct Collector<'a> {
    bookkeeping: &'a mut AckBookkeeping,
    context: &'a InstanceContext,
    budget: CallBudget<'a>,
    /// The number of tuples of the batch, from the front, that were acked, failed or held.
    settled: usize,
    /// The exclusive-or of the ids emitted since `current` was set.
    made: u64,
    /// The guard that names the current tuple in case of a panic.
    guard: RecordGuard,
    /// The number of failed tuples.
    pub(crate) failures: u64,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(ledger: &'a mut AckBookkeeping, context: &'a InstanceContext) -> Self {
        ledger.current.clear();
        ledger.excepted.clear();
        ledger.emitter.apply_parallelism();
        Collector {
            budget: CallBudget::start(&context.clock),
            bookkeeping: ledger,
            context,
            settled: 0,
            made: 0,
            guard: RecordGuard::new(),
            failures: 0,
        }
    }

    /// Returns true if the bolt should return and leave the rest of its tuples for the next call: a
    /// batch is full, or the time is over. Tuples emitted after that are not lost.
    #[inline]
    pub fn is_full(&mut self) -> bool {
        self.bookkeeping.emitter.is_full() || self.budget.is_over()
    }

    /// Emits a tuple, anchored to the current one.
    ///
    /// # Errors
    /// The values do not fit the declared fields.
    #[inline]
    pub fn emit(&mut self, values: impl Values) -> Result<()> {
        self.send(To::Default, None, values)
    }

    /// Emits a tuple to a named stream.
    ///
    /// # Errors
    /// The values do not fit the declared fields, or there is no such stream.
    #[inline]
    pub fn emit_to(&mut self, stream: &str, values: impl Values) -> Result<()> {
        self.send(To::Named(stream), None, values)
    }

    /// Emits a tuple to one instance of the subscribers of a direct stream.
    ///
    /// # Errors
    /// The values do not fit the declared fields, there is no such direct stream, or no such
    /// instance.
    pub fn emit_direct(&mut self, instance: u32, stream: &str, values: impl Values) -> Result<()> {
        self.send(To::Named(stream), Some(instance), values)
    }

    /// Emits a tuple to the stream at an index, and to an instance of a direct stream.
    pub(crate) fn emit_at(
        &mut self,
        stream: usize,
        target: Option<u32>,
        values: impl Values,
    ) -> Result<()> {
        self.send(To::Index(stream), target, values)
    }

    #[inline]
    fn send(&mut self, to: To<'_>, target: Option<u32>, values: impl Values) -> Result<()> {
        let current = self.bookkeeping.current.iter().copied();
        let ids = self.bookkeeping.emitter.emit(to, target, values, current)?;
        self.made ^= ids;
        Ok(())
    }

    /// Runs `work` for `tuple`. Tuples that `work` emits are anchored to `tuple`, which is acked on
    /// success and failed otherwise.
    ///
    /// # Errors
    /// A failure that fails the whole job.
    #[inline]
    pub fn settle(
        &mut self,
        tuple: &Tuple<'_>,
        work: impl FnOnce(&mut Collector<'a>) -> Outcome,
    ) -> Outcome {
        self.bookkeeping.current.clear();
        let salt = tuple.origin.salt;
        let anchors = tuple.anchors.iter().map(|anchor| anchor.delivered(salt));
        self.bookkeeping.current.extend(anchors);
        self.made = 0;
        let outcome = work(self);
        self.settled = self.settled.max(tuple.index + 1);
        let excepted = self
            .bookkeeping
            .excepted
            .pop_if(|place| *place == tuple.index);
        match outcome {
            Ok(()) if excepted.is_some() => self.anchor_emitted(),
            Ok(()) => {
                for anchor in &self.bookkeeping.current {
                    let ids = anchor.id ^ self.made;
                    self.bookkeeping.ack_batcher.update(anchor.root, ids);
                }
            }
            Err(failure) => self.fail_one(tuple, &failure)?,
        }
        self.bookkeeping.current.clear();
        self.guard.advance();
        Ok(())
    }

    /// Adds the emitted tuples to the trees of the current tuples, which are not acked yet.
    fn anchor_emitted(&mut self) {
        if self.made != 0 {
            for anchor in &self.bookkeeping.current {
                self.bookkeeping.ack_batcher.update(anchor.root, self.made);
            }
        }
    }

    /// Holds `tuple`: it is not acked when `execute` returns. The bolt must ack or fail it later.
    pub fn hold(&mut self, tuple: &Tuple<'_>) -> PendingTuple {
        self.bookkeeping.excepted.push(tuple.index);
        PendingTuple::of(tuple)
    }

    /// Runs `work`, and anchors the tuples that it emits to the tuples in `held`.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn tied_to<'h>(
        &mut self,
        held: impl IntoIterator<Item = &'h PendingTuple>,
        work: impl FnOnce(&mut Collector<'a>) -> Outcome,
    ) -> Outcome {
        let before = (std::mem::take(&mut self.bookkeeping.current), self.made);
        let anchors = held.into_iter().flat_map(PendingTuple::anchors);
        self.bookkeeping.current.extend(anchors);
        // A tree counts once, even if several of its tuples are held.
        self.bookkeeping
            .current
            .sort_unstable_by_key(|anchor| anchor.root.bits());
        self.bookkeeping.current.dedup_by_key(|anchor| anchor.root);
        self.made = 0;
        let outcome = work(self);
        self.anchor_emitted();
        (self.bookkeeping.current, self.made) = before;
        outcome
    }

    /// Acks a held tuple.
    pub fn ack(&mut self, held: PendingTuple) {
        for anchor in held.anchors() {
            self.bookkeeping.ack_batcher.update(anchor.root, anchor.id);
        }
    }

    /// Fails a held tuple.
    ///
    /// # Errors
    /// The error of `failure`, if it fails the whole job.
    pub fn fail(&mut self, held: PendingTuple, failure: &Failure) -> Outcome {
        self.fail_as(&held, failure, || {
            ("a tuple that was held".to_string(), Vec::new())
        })
    }

    /// Fails a held tuple; `letter` returns origin and bytes of its dead letter.
    pub(crate) fn fail_as(
        &mut self,
        held: &PendingTuple,
        failure: &Failure,
        letter: impl FnOnce() -> (String, Vec<u8>),
    ) -> Outcome {
        self.count_failure(held.anchors(), failure, letter)
    }

    /// Fails one tuple of a batch, in [`Bolt::execute_batch`](crate::Bolt::execute_batch); the
    /// others are not affected.
    ///
    /// # Errors
    /// The error of `failure`, if it fails the whole job.
    pub fn fail_tuple(&mut self, tuple: &Tuple<'_>, failure: Failure) -> Outcome {
        self.bookkeeping.excepted.push(tuple.index);
        self.fail_one(tuple, &failure)
    }

    /// Acks those of the first `dealt_with` tuples that have no result yet.
    pub(crate) fn ack_rest(&mut self, tuples: &Tuples<'_>, dealt_with: usize) {
        if tuples.batch.anchor_ends.is_empty() {
            return;
        }
        let excepted = &self.bookkeeping.excepted;
        for index in self.settled..dealt_with {
            if !excepted.is_empty() && excepted.contains(&index) {
                continue;
            }
            for anchor in tuples.batch.anchors_of(index) {
                let anchor = anchor.delivered(tuples.origin.salt);
                self.bookkeeping.ack_batcher.update(anchor.root, anchor.id);
            }
        }
    }

    /// Fails all tuples of a batch that have no result yet.
    pub(crate) fn fail_rest(&mut self, tuples: &Tuples<'_>, failure: &Failure) -> Outcome {
        for tuple in tuples.iter().skip(self.settled) {
            if !self.bookkeeping.excepted.contains(&tuple.index) {
                self.fail_one(&tuple, failure)?;
            }
        }
        Ok(())
    }

    #[cold]
    fn fail_one(&mut self, tuple: &Tuple<'_>, failure: &Failure) -> Outcome {
        self.count_failure(tuple.anchors, failure, || {
            let values: Vec<String> = tuple.values().map(|value| value.to_string()).collect();
            (tuple.origin.to_string(), values.join(", ").into_bytes())
        })
    }

    /// Fails a tuple, counts it and records a sample; or fails the job, if the failure requires it.
    #[cold]
    fn count_failure(
        &mut self,
        anchors: &[Anchor],
        failure: &Failure,
        tuple: impl FnOnce() -> (String, Vec<u8>),
    ) -> Outcome {
        if let Some(error) = failure.fatal() {
            return Err(error.into());
        }
        if let Some(failed) = &mut self.bookkeeping.failed {
            let roots = anchors.iter().map(|anchor| anchor.root);
            failed.extend(roots.map(|root| (root, failure.to_string())));
            return Ok(());
        }
        self.failures += 1;
        for anchor in anchors {
            self.bookkeeping.ack_batcher.fail(anchor.root);
        }
        let context = self.context;
        context.dead_letters.handle(OnError::DeadLetter, || {
            let (origin, raw) = tuple();
            DeadLetter {
                vertex: context.vertex.to_string(),
                origin,
                raw,
                reason: failure.to_string(),
            }
        })?;
        Ok(())
    }
}
