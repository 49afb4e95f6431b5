//! What a bolt emits, acks and fails.

use ardea_core::{DeadLetter, InstanceContext, OnError, RecordGuard, Result};

use crate::anchor::Anchor;
use crate::emitter::{Emitter, To};
use crate::encode::Values;
use crate::failure::{Failure, Outcome};
use crate::pace::Pace;
use crate::postman::Postman;
use crate::tuple::{Tuple, Tuples};

/// A tuple that a bolt is not through with yet: neither acked nor failed, until [`Collector::ack`] or [`Collector::fail`] gets it.
///
/// One that is dropped is never acked: its spout's tuple fails when its time is over.
#[derive(Debug)]
#[must_use = "a held tuple has to be acked or failed"]
pub struct Held(Anchors);

/// What a held tuple is tied to; mostly a single tree, which takes no memory of its own.
#[derive(Debug)]
enum Anchors {
    None,
    One(Anchor),
    Many(Box<[Anchor]>),
}

impl Held {
    fn anchors(&self) -> &[Anchor] {
        match &self.0 {
            Anchors::None => &[],
            Anchors::One(anchor) => std::slice::from_ref(anchor),
            Anchors::Many(anchors) => anchors,
        }
    }
}

/// What a bolt instance keeps between calls for its collector.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) emitter: Emitter,
    pub(crate) postman: Postman,
    /// What emitted tuples are tied to now.
    current: Vec<Anchor>,
    /// The tuples of the batch at hand, by their place, that were failed or held.
    excepted: Vec<usize>,
}

impl Ledger {
    pub(crate) fn new(emitter: Emitter, postman: Postman) -> Self {
        Ledger {
            emitter,
            postman,
            current: Vec::new(),
            excepted: Vec::new(),
        }
    }
}

/// Takes what a bolt emits, and what became of its tuples.
#[derive(Debug)]
pub struct Collector<'a> {
    ledger: &'a mut Ledger,
    context: &'a InstanceContext,
    pace: Pace<'a>,
    /// How many tuples of the batch, from the front, have been acked, failed or held.
    settled: usize,
    /// The exclusive-or of the ids of what was emitted since `current` was set.
    made: u64,
    /// Follows the tuples, so that a panic names the one at hand.
    guard: RecordGuard,
    /// How many tuples failed.
    pub(crate) failures: u64,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(ledger: &'a mut Ledger, context: &'a InstanceContext) -> Self {
        ledger.current.clear();
        ledger.excepted.clear();
        ledger.emitter.heed_roster();
        Collector {
            pace: Pace::start(&context.clock),
            ledger,
            context,
            settled: 0,
            made: 0,
            guard: RecordGuard::new(),
            failures: 0,
        }
    }

    /// Whether it is time to return and leave the rest for the next call: a batch is full, or time is over. What is emitted all the
    /// same is kept.
    #[inline]
    pub fn is_full(&mut self) -> bool {
        self.ledger.emitter.is_full() || self.pace.is_over()
    }

    /// Emits a tuple, tied to the one at hand.
    ///
    /// # Errors
    /// If it does not fit the declared fields.
    #[inline]
    pub fn emit(&mut self, values: impl Values) -> Result<()> {
        self.send(To::Default, None, values)
    }

    /// Emits a tuple to a named stream.
    ///
    /// # Errors
    /// If it does not fit the declared fields, or there is no such stream.
    #[inline]
    pub fn emit_to(&mut self, stream: &str, values: impl Values) -> Result<()> {
        self.send(To::Named(stream), None, values)
    }

    /// Emits a tuple to one instance of those who subscribed to a direct stream.
    ///
    /// # Errors
    /// If it does not fit the declared fields, there is no such direct stream, or no such instance.
    pub fn emit_direct(&mut self, instance: u32, stream: &str, values: impl Values) -> Result<()> {
        self.send(To::Named(stream), Some(instance), values)
    }

    #[inline]
    fn send(&mut self, to: To<'_>, target: Option<u32>, values: impl Values) -> Result<()> {
        let current = self.ledger.current.iter().copied();
        let ids = self.ledger.emitter.emit(to, target, values, current)?;
        self.made ^= ids;
        Ok(())
    }

    /// Does `work` for a tuple: what it emits is tied to it; it is acked if `work` succeeds and failed if it doesn't.
    ///
    /// # Errors
    /// A failure that fails the whole job.
    #[inline]
    pub fn settle(
        &mut self,
        tuple: &Tuple<'_>,
        work: impl FnOnce(&mut Collector<'a>) -> Outcome,
    ) -> Outcome {
        self.ledger.current.clear();
        let salt = tuple.origin.salt;
        let anchors = tuple.anchors.iter().map(|anchor| anchor.delivered(salt));
        self.ledger.current.extend(anchors);
        self.made = 0;
        let outcome = work(self);
        self.settled = self.settled.max(tuple.index + 1);
        let excepted = self.ledger.excepted.pop_if(|place| *place == tuple.index);
        match outcome {
            Ok(()) if excepted.is_some() => self.tie(),
            Ok(()) => {
                for anchor in &self.ledger.current {
                    let ids = anchor.id ^ self.made;
                    self.ledger.postman.update(anchor.root, ids);
                }
            }
            Err(failure) => self.lose(tuple, &failure)?,
        }
        self.ledger.current.clear();
        self.guard.advance();
        Ok(())
    }

    /// Puts what was emitted into the trees at hand, whose tuples are not acked yet.
    fn tie(&mut self) {
        if self.made != 0 {
            for anchor in &self.ledger.current {
                self.ledger.postman.update(anchor.root, self.made);
            }
        }
    }

    /// Keeps a tuple from being acked when `execute` returns; it is acked or failed later.
    pub fn hold(&mut self, tuple: &Tuple<'_>) -> Held {
        self.ledger.excepted.push(tuple.index);
        let salt = tuple.origin.salt;
        Held(match tuple.anchors {
            [] => Anchors::None,
            [only] => Anchors::One(only.delivered(salt)),
            many => Anchors::Many(many.iter().map(|a| a.delivered(salt)).collect()),
        })
    }

    /// Ties what `work` emits to tuples that are held.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn tied_to<'h>(
        &mut self,
        held: impl IntoIterator<Item = &'h Held>,
        work: impl FnOnce(&mut Collector<'a>) -> Outcome,
    ) -> Outcome {
        let before = (std::mem::take(&mut self.ledger.current), self.made);
        let anchors = held.into_iter().flat_map(Held::anchors);
        self.ledger.current.extend(anchors);
        // A tree counts once, however many of its tuples are among these.
        self.ledger
            .current
            .sort_unstable_by_key(|anchor| anchor.root.bits());
        self.ledger.current.dedup_by_key(|anchor| anchor.root);
        self.made = 0;
        let outcome = work(self);
        self.tie();
        (self.ledger.current, self.made) = before;
        outcome
    }

    /// Acks a tuple that was held.
    pub fn ack(&mut self, held: Held) {
        for anchor in held.anchors() {
            self.ledger.postman.update(anchor.root, anchor.id);
        }
    }

    /// Fails a tuple that was held.
    ///
    /// # Errors
    /// If the failure fails the whole job.
    pub fn fail(&mut self, held: Held, failure: &Failure) -> Outcome {
        self.count_failure(held.anchors(), failure, || {
            ("a tuple that was held".to_string(), Vec::new())
        })
    }

    /// Fails one tuple of a batch, in [`Bolt::execute_batch`](crate::Bolt::execute_batch); the others go on.
    ///
    /// # Errors
    /// If the failure fails the whole job.
    pub fn fail_tuple(&mut self, tuple: &Tuple<'_>, failure: Failure) -> Outcome {
        self.ledger.excepted.push(tuple.index);
        self.lose(tuple, &failure)
    }

    /// Acks those of the first `dealt_with` tuples that nothing has been said of.
    pub(crate) fn ack_rest(&mut self, tuples: &Tuples<'_>, dealt_with: usize) {
        if tuples.batch.anchor_ends.is_empty() {
            return;
        }
        let excepted = &self.ledger.excepted;
        for index in self.settled..dealt_with {
            if !excepted.is_empty() && excepted.contains(&index) {
                continue;
            }
            for anchor in tuples.batch.anchors_of(index) {
                let anchor = anchor.delivered(tuples.origin.salt);
                self.ledger.postman.update(anchor.root, anchor.id);
            }
        }
    }

    /// Fails all tuples of a batch that nothing has been said of.
    pub(crate) fn lose_rest(&mut self, tuples: &Tuples<'_>, failure: &Failure) -> Outcome {
        for tuple in tuples.iter().skip(self.settled) {
            if !self.ledger.excepted.contains(&tuple.index) {
                self.lose(&tuple, failure)?;
            }
        }
        Ok(())
    }

    #[cold]
    fn lose(&mut self, tuple: &Tuple<'_>, failure: &Failure) -> Outcome {
        self.count_failure(tuple.anchors, failure, || {
            let values: Vec<String> = tuple.values().map(|value| value.to_string()).collect();
            let origin = format!("stream {:?} of {:?}", tuple.stream(), tuple.component());
            (origin, values.join(", ").into_bytes())
        })
    }

    /// Fails a tuple, counts it and keeps it as a sample; or fails the job, if the failure says so.
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
        self.failures += 1;
        for anchor in anchors {
            self.ledger.postman.fail(anchor.root);
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
