//! Deliberate violations of every contract rule that the kit checks.

use ardea_core::{
    Epoch, ErrorCode, Inbox, Marker, Ordinal, Outbox, Processor, Progress, Result, Watermark,
};
use ardea_testkit::{
    Counted, Expected, LiveCount, ProcessorTest, TestFailure, TestInput, Timestamp,
};

/// The contract violation of a [`PassP`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    LosesWhenRefused,
    WritesTwiceAfterRefusal,
    Overfills,
    ForgetsWatermark,
    RepeatsWatermark,
    TurnsWatermarkBack,
    GetsStuck,
    IsNeverDone,
    SaysDoneTooEarly,
    EndsEpochs,
    EndsStream,
    Panics,
    Fails,
    WritesToMissingOutput,
    WritesOtherType,
    PanicsInClose,
    LeaksWhenStopped,
    GrowsInbox,
}

/// Passes records on, except for its fault.
struct PassP {
    fault: Fault,
    refused: bool,
    held: Option<Counted<u32>>,
    last: Option<Watermark>,
    completed: bool,
}

impl PassP {
    fn new(fault: Fault) -> Self {
        PassP {
            fault,
            refused: false,
            held: None,
            last: None,
            completed: false,
        }
    }
}

type Record = Counted<u32>;

impl Processor for PassP {
    fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
        if self.fault == Fault::WritesToMissingOutput {
            outbox.lane::<Record>(Ordinal::SECOND)?;
        }
        if self.fault == Fault::WritesOtherType {
            outbox.lane::<u8>(Ordinal::FIRST)?.push(1, Timestamp::MIN);
            return Ok(());
        }
        let rows = inbox.rows::<Record>()?;
        if self.fault == Fault::GrowsInbox {
            let (first, time) = (rows.values()[0].clone(), rows.times()[0]);
            rows.push(first, time);
            return Ok(());
        }
        let mut out = outbox.lane::<Record>(Ordinal::FIRST)?;
        let room = out.room();
        let was_refused = std::mem::replace(&mut self.refused, room < rows.len());
        match self.fault {
            Fault::LosesWhenRefused => {
                drop(rows.drain_front(rows.len()).skip(room).collect::<Vec<_>>())
            }
            Fault::Overfills => out.rows().append_front(rows, usize::MAX),
            Fault::GetsStuck if *rows.values()[0] == 2 => return Ok(()),
            Fault::Panics if *rows.values()[0] == 2 => panic!("I do not like 2"),
            Fault::Fails => {
                return Err(ardea_core::Error::new(
                    ErrorCode::UserError,
                    "I do not like it",
                ));
            }
            Fault::WritesTwiceAfterRefusal if was_refused && room > 1 => {
                out.push(rows.values()[0].clone(), rows.times()[0]);
            }
            Fault::LeaksWhenStopped => self.held = rows.values().first().cloned(),
            _ => {}
        }
        let room = out.room();
        out.rows().append_front(rows, room);
        Ok(())
    }

    fn on_watermark(&mut self, watermark: Watermark, outbox: &mut Outbox) -> Result<Progress> {
        let last = self.last.replace(watermark);
        match self.fault {
            Fault::ForgetsWatermark => return Ok(Progress::DONE),
            Fault::RepeatsWatermark => outbox.watermark(watermark),
            Fault::TurnsWatermarkBack => {
                if let Some(last) = last {
                    outbox.watermark(watermark);
                    outbox.watermark(last);
                }
            }
            _ => {}
        }
        outbox.watermark(watermark);
        Ok(Progress::DONE)
    }

    fn on_epoch(&mut self, epoch: Epoch, outbox: &mut Outbox) -> Result<Progress> {
        if self.fault == Fault::EndsEpochs {
            outbox.marker(Marker::Barrier(epoch));
        }
        Ok(Progress::DONE)
    }

    fn complete(&mut self, outbox: &mut Outbox) -> Result<Progress> {
        match self.fault {
            Fault::IsNeverDone => return Ok(Progress::MADE),
            Fault::SaysDoneTooEarly => {
                // The final record is dropped if there is no room for it.
                let mut out = outbox.lane::<Record>(Ordinal::FIRST)?;
                if !out.is_full() {
                    out.push(Counted::new(99, &LiveCount::new()), Timestamp::MIN);
                }
            }
            Fault::EndsStream => outbox.marker(Marker::Done),
            _ => {}
        }
        self.completed = true;
        self.held = None;
        Ok(Progress::DONE)
    }

    fn close(&mut self) {
        assert!(
            self.fault != Fault::PanicsInClose || self.completed,
            "I was not finished"
        );
        std::mem::forget(self.held.take());
    }
}

fn verdict(fault: Fault) -> std::result::Result<(), TestFailure> {
    let live = LiveCount::new();
    let at = Timestamp::from_secs;
    let record = |n: u32| (Counted::new(n, &live), at(i64::from(n)));
    let input = TestInput::new()
        .records((1..=3).map(record))
        .watermark(at(3))
        .barrier()
        .records((4..=6).map(record))
        .watermark(at(6));
    let mut expected: Vec<_> = (1..=6).map(record).collect();
    if fault == Fault::SaysDoneTooEarly {
        expected.push((Counted::new(99, &live), Timestamp::MIN));
    }
    ProcessorTest::new(move || PassP::new(fault))
        .input(input)
        .output(Expected::timed(expected))
        .expect_no_leak(&live)
        .try_run()
        .map(drop)
}

#[track_caller]
fn is_caught(fault: Fault, words: &str) {
    let failure = verdict(fault).expect_err("the fault is caught");
    assert!(
        failure.broken().contains(words),
        "{fault:?} is caught for another reason: {failure}"
    );
}

#[test]
fn a_processor_without_fault_passes() {
    verdict(Fault::None).unwrap();
}

#[test]
fn a_record_lost_on_refusal_is_caught() {
    is_caught(Fault::LosesWhenRefused, "the first difference is at record");
}

#[test]
fn a_record_written_twice_after_a_refusal_is_caught() {
    is_caught(
        Fault::WritesTwiceAfterRefusal,
        "the first difference is at record",
    );
}

#[test]
fn an_overfull_output_is_caught() {
    is_caught(Fault::Overfills, "records were written where `room()` was");
}

#[test]
fn a_forgotten_watermark_is_caught() {
    is_caught(
        Fault::ForgetsWatermark,
        "each watermark must be passed on exactly once",
    );
}

#[test]
fn a_repeated_watermark_is_caught() {
    is_caught(
        Fault::RepeatsWatermark,
        "each watermark must be passed on exactly once",
    );
}

#[test]
fn a_watermark_that_runs_backwards_is_caught() {
    is_caught(Fault::TurnsWatermarkBack, "the watermark ran backwards");
}

#[test]
fn a_processor_that_stops_reading_is_called_stuck() {
    is_caught(Fault::GetsStuck, "stuck: 200 calls of process(input 0)");
}

#[test]
fn a_callback_that_is_never_done_is_called_stuck() {
    is_caught(Fault::IsNeverDone, "calls of complete in a row");
}

#[test]
fn a_last_result_dropped_for_want_of_room_is_caught() {
    is_caught(
        Fault::SaysDoneTooEarly,
        "the first difference is at record 6",
    );
}

#[test]
fn an_epoch_ended_by_a_processor_is_caught() {
    is_caught(Fault::EndsEpochs, "ends of epochs, which the runtime does");
}

#[test]
fn a_stream_ended_by_a_processor_is_caught() {
    is_caught(Fault::EndsStream, "wrote the end of the stream itself");
}

#[test]
fn a_panic_is_reported_with_its_callback_and_message() {
    is_caught(Fault::Panics, "process(input 0) panicked: I do not like 2");
}

#[test]
fn an_error_is_reported_with_its_callback_and_message() {
    is_caught(
        Fault::Fails,
        "process(input 0) failed: ARD-202: I do not like it",
    );
}

#[test]
fn writing_to_an_output_that_is_not_there_is_caught() {
    is_caught(
        Fault::WritesToMissingOutput,
        "a processor wrote to output 1 of 1",
    );
}

#[test]
fn records_of_another_type_are_caught() {
    is_caught(
        Fault::WritesOtherType,
        "output 0 carries Chunk<u8>(1 records) where the test expects",
    );
}

#[test]
fn a_close_that_panics_after_a_cancellation_is_caught() {
    is_caught(Fault::PanicsInClose, "close panicked: I was not finished");
}

#[test]
fn a_record_leaked_by_a_cancellation_is_caught() {
    is_caught(Fault::LeaksWhenStopped, "1 records are still alive");
}

#[test]
fn an_inbox_that_grows_is_caught() {
    is_caught(Fault::GrowsInbox, "left 2 records in an inbox that held 1");
}

#[test]
fn the_report_names_the_variant_and_the_last_calls() {
    let report = verdict(Fault::Overfills).unwrap_err().to_string();
    assert!(report.contains("PassP broke its contract"), "{report}");
    assert!(report.contains("variant: records"), "{report}");
    assert!(
        report.contains("the last calls:\n      process(input 0): room for"),
        "{report}"
    );
}
