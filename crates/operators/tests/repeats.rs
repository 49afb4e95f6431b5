//! Tests that in micro-batches a restored step repeats the output of its predecessor, record by
//! record.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use ardea_aggregate::{collect_list, count, max};
use ardea_core::{
    Chunk, Epoch, Guarantee, Inbox, Instance, InstanceContext, MicroBatch, MicroBatchTime, Ordinal,
    Outbox, OutboxRuntime, Processor, Progress, RestoredState, Rows, SnapshotRequest,
    SnapshotWriter, StateChunk, Timestamp, Watermark,
};
use ardea_operators::*;
use proptest::prelude::*;

mod json;

use json::{Json, json};

type Pair = (u8, i64);

/// The records of a micro-batch, by input, and the watermark at its end.
type Batch = ([Vec<Pair>; 2], i64);

fn key(pair: &Pair) -> u8 {
    pair.0
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A step that emits records `U` and, if it has late records, those to its second output.
struct Driven<U> {
    step: Box<dyn Processor>,
    outbox: Outbox,
    out: Vec<(U, Timestamp)>,
    batch: MicroBatch,
    records: PhantomData<U>,
}

impl<U: Clone + Send + 'static> Driven<U> {
    fn start(mut step: Box<dyn Processor>) -> Self {
        let context = InstanceContext {
            guarantee: Guarantee::ExactlyOnce,
            micro_batches: Some(MicroBatchTime::FromStart),
            ..InstanceContext::detached("repeated")
        };
        step.init(&context).unwrap();
        Driven {
            step,
            outbox: Outbox::new(2, 7),
            out: Vec::new(),
            batch: MicroBatch(0),
            records: PhantomData,
        }
    }

    fn take_output(&mut self) {
        if let Some(mut chunk) = self.outbox.take_chunk(0, Chunk::default) {
            let rows = chunk.rows::<U>().unwrap().drain_front(usize::MAX);
            self.out.extend(rows);
        }
        self.outbox.take_chunk(1, Chunk::default);
        for lane in 0..2 {
            while self.outbox.take_marker(lane).is_some() {}
        }
        let _ = self.outbox.take_wake_at();
    }

    fn until_done(
        &mut self,
        mut call: impl FnMut(&mut dyn Processor, &mut Outbox) -> ardea_core::Result<Progress>,
    ) {
        while !call(&mut *self.step, &mut self.outbox).unwrap().done {
            self.take_output();
        }
        self.take_output();
    }

    /// Runs a micro-batch whose records come in chunks of `size`. Returns its output.
    fn run(&mut self, (inputs, watermark): &Batch, size: usize) -> Vec<(U, Timestamp)> {
        for (input, records) in inputs.iter().enumerate() {
            for chunk in records.chunks(size) {
                let timed = chunk
                    .iter()
                    .map(|pair| (*pair, Timestamp::from_secs(pair.1)));
                let mut inbox = Inbox::default();
                inbox.fill(Chunk::new(timed.collect::<Rows<Pair>>()));
                while !inbox.is_empty() {
                    let input = Ordinal(input as u16);
                    self.step
                        .process(input, &mut inbox, &mut self.outbox)
                        .unwrap();
                    self.take_output();
                }
            }
        }
        // Output that found no room.
        for _ in 0..100 {
            self.step.on_wake(&mut self.outbox).unwrap();
            self.take_output();
        }
        self.watermark(*watermark);
        let batch = self.batch;
        self.until_done(|step, outbox| step.on_batch_end(batch, outbox));
        self.batch = batch.next();
        std::mem::take(&mut self.out)
    }

    fn watermark(&mut self, second: i64) {
        let watermark = Watermark(Timestamp::from_secs(second));
        self.until_done(|step, outbox| step.on_watermark(watermark, outbox));
    }

    fn snapshot(&mut self) -> StateChunk {
        self.until_done(|step, outbox| step.on_epoch(Epoch(1), outbox));
        let mut chunk = StateChunk::default();
        let state = self.step.state();
        state
            .take_snapshot(SnapshotRequest::full(Epoch(1)))
            .unwrap();
        while !state
            .write_snapshot(&mut SnapshotWriter::new(&mut chunk, usize::MAX))
            .unwrap()
            .done
        {}
        while !state.on_checkpoint_committed(Epoch(1)).unwrap().done {}
        chunk
    }

    fn restore(&mut self, chunk: &StateChunk, watermark: i64) {
        let mut position = 0;
        while position < chunk.byte_len() {
            let mut entries = RestoredState::new(chunk, &mut position, Instance::ONLY, usize::MAX);
            self.step.state().restore(&mut entries).unwrap();
        }
        while !self.step.state().on_restored(Epoch(1)).unwrap().done {}
        self.watermark(watermark);
        assert!(self.out.is_empty(), "it only repeats the watermark");
    }
}

/// Runs a step, and one that takes its place after the micro-batch `cut` with its state.
fn repeats<U>(make: impl Fn() -> Box<dyn Processor>, batches: &[Batch], cut: usize)
where
    U: Clone + Debug + PartialEq + Send + 'static,
{
    let mut first = Driven::<U>::start(make());
    for batch in &batches[..cut] {
        first.run(batch, 3);
    }
    let state = first.snapshot();
    let mut second = Driven::<U>::start(make());
    second.restore(&state, batches[cut - 1].1);
    for batch in &batches[cut..] {
        assert_eq!(second.run(batch, 5), first.run(batch, 2));
    }
}

/// Generates micro-batches with records of five seconds each, out of order and late.
fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let records = || prop::collection::vec((0..60u8, -9..10i64), 0..25);
    let batch = (records(), records()).prop_map(|(left, right)| [left, right]);
    prop::collection::vec(batch, 3..12).prop_map(|batches| {
        let numbered = (0i64..).zip(batches);
        let at = |number: i64, records: Vec<Pair>| {
            let records = records.into_iter();
            records
                .map(|(key, offset)| (key, 20 + number * 5 + offset))
                .collect()
        };
        numbered
            .map(|(number, inputs)| (inputs.map(|it| at(number, it)), 15 + number * 5))
            .collect()
    })
}

fn one_input(batches: &[Batch]) -> Vec<Batch> {
    let one = |(inputs, watermark): &Batch| ([inputs[0].clone(), Vec::new()], *watermark);
    batches.iter().map(one).collect()
}

proptest! {
    #[test]
    fn windows(batches in batches(), cut in 1..3usize, late in prop_oneof![Just(0), Just(12)]) {
        let batches = one_input(&batches);
        for (length, slide) in [(8, 8), (12, 4), (6, 1)] {
            let spec = WindowSpec::sliding(secs(length), secs(slide)).unwrap();
            let spec = spec.allowed_lateness(secs(late));
            let make = || {
                let fold = Arc::new(FoldOne::new(key, count()));
                let step = SlidingWindowP::new(spec, fold).with_codecs(json(), json());
                Box::new(step) as Box<dyn Processor>
            };
            repeats::<WindowResult<u8, u64>>(make, &batches, cut);
            let make = || {
                let fold = Arc::new(FoldOne::new(key, max(|pair: &Pair| pair.1)));
                let step = SlidingWindowP::new(spec, fold).with_codecs(json(), json());
                Box::new(step) as Box<dyn Processor>
            };
            repeats::<WindowResult<u8, Option<i64>>>(make, &batches, cut);
        }
    }

    #[test]
    fn sessions(batches in batches(), cut in 1..3usize, late in prop_oneof![Just(0), Just(12)]) {
        let batches = one_input(&batches);
        let spec = SessionSpec::gap(secs(3)).unwrap().allowed_lateness(secs(late));
        let fold = || Arc::new(FoldOne::new(key, collect_list()));
        let make = || {
            let step = SessionWindowP::new(spec, fold()).with_codecs(json());
            Box::new(step) as Box<dyn Processor>
        };
        repeats::<WindowResult<u8, Vec<Pair>>>(make, &batches, cut);
        let make = || {
            let step = SessionWindowP::new(spec, fold()).changes().with_codecs(json());
            Box::new(step) as Box<dyn Processor>
        };
        repeats::<WindowChange<u8, Vec<Pair>>>(make, &batches, cut);
    }

    #[test]
    fn interval_joins(batches in batches(), cut in 1..3usize) {
        let interval = JoinInterval::between(secs(2), secs(4));
        let make = || {
            let logic = outer_interval_join(key, key, |left: &Pair, right: Option<&Pair>| {
                (*left, right.copied())
            });
            let json = || Arc::new(Json);
            let step = IntervalJoinP::new(Arc::new(logic), interval);
            let step = step.with_codecs(json(), json(), json());
            Box::new(step) as Box<dyn Processor>
        };
        repeats::<(Pair, Option<Pair>)>(make, &batches, cut);
    }

    #[test]
    fn first_stages_do_not_depend_on_the_division_into_chunks(batches in batches()) {
        let batches = one_input(&batches);
        let spec = WindowSpec::sliding(secs(12), secs(4)).unwrap();
        let make = || {
            let fold = Arc::new(FoldOne::new(key, count()));
            let step = SliceCombineP::new(spec, fold).keys_max(20);
            Driven::<Partial<u8, u64>>::start(Box::new(step))
        };
        let (mut one, mut other) = (make(), make());
        for batch in &batches {
            let partials = |of: &mut Driven<Partial<u8, u64>>, size| {
                let partials = of.run(batch, size).into_iter();
                partials.map(|(it, time)| (it.key, it.acc, time)).collect::<Vec<_>>()
            };
            assert_eq!(partials(&mut one, 1), partials(&mut other, 9));
        }
    }
}
