//! Tests of processors that keep the contract in unusual ways, and of expectations.

use std::collections::VecDeque;
use std::time::Duration;

use ardea_core::{
    Chunk, Clock, DeadLetter, Epoch, Error, ErrorCode, Inbox, InstanceContext, OnError, Ordinal,
    Outbox, Priority, Processor, Progress, Result, Watermark,
};
use ardea_testkit::{Emitted, Expected, ManualClock, ProcessorTest, TestInput, Timestamp};

/// Forwards whole chunks unread.
#[derive(Default)]
struct HandOnP(Chunk);

impl Processor for HandOnP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if self.0.is_empty() {
            inbox.swap(&mut self.0);
        }
        if !outbox.offer_chunk(Ordinal::FIRST, &mut self.0)? {
            inbox.swap(&mut self.0);
        }
        Ok(())
    }
}

#[test]
fn whole_chunks_may_be_offered_beyond_the_room_for_records() {
    ProcessorTest::new(HandOnP::default)
        .input::<u64>([1, 2, 3, 4])
        .output::<u64>([1, 2, 3, 4])
        .run();
    ProcessorTest::new(HandOnP::default)
        .input::<()>([(); 4])
        .output::<()>([(); 4])
        .run();
}

/// Holds records back until the watermark passes their time, and emits the size of each epoch.
#[derive(Default)]
struct HoldBackP {
    held: VecDeque<(u64, Timestamp)>,
}

impl Processor for HoldBackP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, _: &mut Outbox) -> Result<()> {
        self.held
            .extend(inbox.rows::<u64>()?.drain_front(usize::MAX));
        self.held.make_contiguous().sort_by_key(|record| record.1);
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        let mut out = outbox.lane::<u64>(Ordinal::FIRST)?;
        while let Some(&(value, time)) = self.held.front().filter(|record| record.1 < watermark.0) {
            if out.is_full() {
                return Ok(Progress::MADE);
            }
            out.push(value, time);
            self.held.pop_front();
        }
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        let mut out = outbox.lane::<u64>(Ordinal::SECOND)?;
        if out.is_full() {
            return Ok(Progress::NONE);
        }
        out.push(epoch.0, Timestamp::MIN);
        Ok(Progress::DONE)
    }
}

fn at(secs: i64) -> Timestamp {
    Timestamp::from_secs(secs)
}

fn held_back() -> ProcessorTest {
    let first = TestInput::new()
        .records([(3, at(3)), (1, at(1))])
        .watermark(at(3))
        .barrier();
    let second = TestInput::new()
        .record(2, at(2))
        .watermark(at(2))
        .barrier()
        .record(4, at(4))
        .barrier();
    ProcessorTest::new(HoldBackP::default)
        .input::<u64>(first)
        .input::<u64>(second)
}

#[test]
fn several_inputs_and_outputs_agree_in_all_interleavings() {
    held_back()
        .output::<u64>(Expected::timed([
            (1, at(1)),
            (2, at(2)),
            (3, at(3)),
            (4, at(4)),
        ]))
        .output::<u64>([1, 2])
        .forbid_late_output()
        .run();
}

#[test]
fn the_place_of_records_among_the_marks_can_be_tested() {
    let mark = |time| Emitted::Watermark(Watermark(time));
    held_back()
        .interleave([0, 0, 0, 0, 1, 1, 1])
        .output::<u64>(Expected::events([
            Emitted::Record(1, at(1)),
            mark(at(2)),
            Emitted::Barrier(Epoch(1)),
            Emitted::Barrier(Epoch(2)),
            Emitted::Record(2, at(2)),
            Emitted::Record(3, at(3)),
            Emitted::Record(4, at(4)),
            mark(Timestamp::MAX),
        ]))
        .output::<u64>(Expected::anything())
        .run();
}

#[test]
fn outputs_that_must_only_agree_are_compared_between_variants() {
    held_back()
        .output::<u64>(Expected::same_in_all_variants())
        .output::<u64>(Expected::check(|records| match records.len() {
            2 => Ok(()),
            other => Err(format!("{other} epochs")),
        }))
        .expect_watermarks([at(2)])
        .run();
}

/// Reads its first input into memory before the second; requires input priorities.
#[derive(Default)]
struct LookUpP {
    table: Vec<u64>,
    built: bool,
}

impl Processor for LookUpP {
    fn process(&mut self, ordinal: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if ordinal == Ordinal::FIRST {
            self.table.extend(
                inbox
                    .rows::<u64>()?
                    .drain_front(usize::MAX)
                    .map(|(value, _)| value),
            );
            return Ok(());
        }
        let mut out = outbox.lane::<bool>(Ordinal::FIRST)?;
        for (key, time) in inbox.rows::<u64>()?.drain_front(out.room()) {
            out.push(self.built && self.table.contains(&key), time);
        }
        Ok(())
    }

    fn on_edge_done(&mut self, ordinal: Ordinal, _: &mut Outbox) -> Result<Progress> {
        self.built |= ordinal == Ordinal::FIRST;
        Ok(Progress::DONE)
    }
}

#[test]
fn an_input_with_priority_is_read_first() {
    let test = || {
        ProcessorTest::new(LookUpP::default)
            .input::<u64>([1, 2, 3])
            .input::<u64>([3, 4])
            .output::<bool>([true, false])
    };
    test().priority(Ordinal::FIRST, Priority::FIRST).run();
    assert!(
        test().try_run().is_err(),
        "without priority the lookup may come before the table"
    );
}

/// Emits each record a second after it arrived; counts odd ones as late and sends zero to the dead
/// letters.
#[derive(Default)]
struct DelayP {
    waiting: VecDeque<(Duration, u64)>,
    context: Option<InstanceContext>,
}

impl DelayP {
    fn clock(&self) -> Clock {
        self.context
            .as_ref()
            .map_or_else(Clock::system, |context| context.clock.clone())
    }

    fn emit(&mut self, until: Duration, outbox: &mut Outbox) -> Result<()> {
        let mut out = outbox.lane::<u64>(Ordinal::FIRST)?;
        while let Some(&(due, value)) = self.waiting.front().filter(|waiting| waiting.0 <= until) {
            if out.is_full() {
                break;
            }
            out.push(value, Timestamp::MIN + due);
            self.waiting.pop_front();
        }
        if let Some(&(due, _)) = self.waiting.front() {
            outbox.wake_at(due.max(self.clock().now() + Duration::from_millis(1)));
        }
        Ok(())
    }
}

impl Processor for DelayP {
    fn init(&mut self, context: &InstanceContext) -> Result<()> {
        self.context = Some(context.clone());
        Ok(())
    }

    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        let due = self.clock().now() + Duration::from_secs(1);
        for (value, _) in inbox.rows::<u64>()?.drain_front(usize::MAX) {
            if let (0, Some(context)) = (value, &self.context) {
                context
                    .dead_letters
                    .handle(OnError::DeadLetter, || DeadLetter {
                        vertex: "delay".into(),
                        origin: "input 0".into(),
                        raw: vec![0],
                        reason: "zero".into(),
                    })?;
                continue;
            }
            if let (1, Some(context)) = (value % 2, &self.context) {
                context.metrics.count_late(1);
            }
            self.waiting.push_back((due, value));
        }
        outbox.wake_at(due);
        Ok(())
    }

    fn on_wake(&mut self, outbox: &mut Outbox) -> Result<()> {
        self.emit(self.clock().now(), outbox)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        self.emit(Duration::MAX, outbox)?;
        Ok(Progress::done_if(self.waiting.is_empty()))
    }
}

fn delayed() -> ProcessorTest {
    let second = Duration::from_secs(1);
    ProcessorTest::new(DelayP::default)
        .input::<u64>(
            TestInput::new()
                .values([1, 0, 2])
                .advance_clock(second)
                .values([3])
                .advance_clock(second / 2)
                .values([4]),
        )
        .output::<u64>([1, 2, 3, 4])
}

#[test]
fn timers_late_records_and_dead_letters_are_driven_and_counted() {
    delayed()
        .expect_late(2)
        .expect_dead_letters(1)
        .clock(ManualClock::new())
        .run();
    let failure = delayed().expect_late(1).try_run().unwrap_err();
    assert_eq!(
        failure.broken(),
        "1 late records were expected, 2 were counted"
    );
}

#[test]
fn the_same_seed_gives_the_same_calls() {
    let calls = |seed| delayed().seed(seed).run().calls;
    assert_eq!(calls(1), calls(1));
}

struct RefuseP;

impl Processor for RefuseP {
    fn init(&mut self, _: &InstanceContext) -> Result<()> {
        Err(Error::new(
            ErrorCode::InvalidConfig,
            "a window of no length",
        ))
    }
}

#[test]
fn an_expected_error_must_come_and_must_be_the_expected_one() {
    let test = || ProcessorTest::new(|| RefuseP).input::<u8>([1]);
    test().expect_error(ErrorCode::InvalidConfig).run();
    assert!(test().expect_error(ErrorCode::Network).try_run().is_err());
    assert!(
        delayed()
            .expect_error(ErrorCode::Network)
            .try_run()
            .is_err()
    );
}
