//! A test kit that drives any processor through hostile schedules and checks its contract.
//!
//! A runtime guarantees a [`Processor`](ardea_core::Processor) only its contract. Records arrive
//! one by one or by the thousand, the outbox may be full at any call, a watermark may come between
//! any two calls, and a job may be cancelled at any call. This kit produces all of these cases in a
//! plain unit test, from a seed, without threads and without waiting.
//!
//! * [`ProcessorTest`] runs a processor through a matrix of schedules and compares its output in
//!   each; [`SourceTest`] does the same for a source.
//! * [`TestInput`] holds the input, [`Expected`] the expected output; [`Counted`] records detect
//!   leaks.
//! * [`Harness`] drives one processor by hand, call by call; [`ExternalHarness`] one that talks to
//!   a real system.
//! * [`TestSource`] and [`TestSink`] are the ends of a whole job under test: the source pauses,
//!   ends, fails and panics at items in its data, the sink stores all records.
//! * [`ManualClock`] is a clock that advances only on request.
//!
//! # Invariants
//!
//! * The same test gives the same schedules everywhere: all random choices come from a seed.
//! * No test fails because of the duration of a call; slices are measured and reported.
//! * The kit keeps the contract itself: it makes only calls that the engine may make.
//!
//! # Example: testing a custom processor
//!
//! The processor below keeps the running total of its input. It must not add a record for which its
//! outbox has no room, so it reads only as many as it can write. The test gives the input and the
//! expected output; the kit generates the schedules.
//!
//! ```
//! use ardea_core::{Inbox, Ordinal, Outbox, Processor, Result};
//! use ardea_testkit::{ProcessorTest, TestInput, Timestamp};
//!
//! #[derive(Default)]
//! struct RunningTotal(u64);
//!
//! impl Processor for RunningTotal {
//!     fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
//!         let mut out = outbox.lane::<u64>(Ordinal::FIRST)?;
//!         for (number, time) in inbox.rows::<u64>()?.drain_front(out.room()) {
//!             self.0 += number;
//!             out.push(self.0, time);
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let at = Timestamp::from_secs;
//! let report = ProcessorTest::new(RunningTotal::default)
//!     .input::<u64>(TestInput::new().record(1, at(1)).record(2, at(2)).watermark(at(2)).record(3, at(3)))
//!     .output::<u64>([1, 3, 6])
//!     .run();
//! assert!(report.variants >= 12);
//! println!("{report}");
//! ```
//!
//! # Example: a detected fault
//!
//! This processor reads everything and writes as much as fits. It passes any test whose outbox
//! never fills. The kit detects the fault, and the report names the variant, the missing record and
//! the last calls.
//!
//! ```should_panic
//! use ardea_core::{Inbox, Ordinal, Outbox, Processor, Result};
//! use ardea_testkit::ProcessorTest;
//!
//! struct Forgetful;
//!
//! impl Processor for Forgetful {
//!     fn process(&mut self, _: Ordinal, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<()> {
//!         let mut out = outbox.lane::<u64>(Ordinal::FIRST)?;
//!         for (number, time) in inbox.rows::<u64>()?.drain_front(usize::MAX) {
//!             if !out.is_full() {
//!                 out.push(number, time);
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! ProcessorTest::new(|| Forgetful).input::<u64>([1, 2, 3]).output::<u64>([1, 2, 3]).run();
//! ```
//!
//! # The life cycle of a processor
//!
//! `init` comes first. Then, in the order of the inputs: `process` (with or without room, until the
//! inbox is empty), `on_watermark` with the minimum watermark of the inputs, `on_epoch` when all
//! inputs have reached the epoch's end, `on_wake` when the clock passes a requested time,
//! `on_edge_done` at an input's end. After the end of the last input come `on_watermark` with
//! [`Watermark::END`](ardea_core::Watermark::END), `complete` and `close`. A cancelled run goes to
//! `close` from any of these calls.
//!
//! For a processor that [survives](ProcessorTest::survives), snapshots are also requested before
//! any of these calls and written between others. The processor fails, a new one is restored from
//! the last committed snapshot, and the input since then is replayed.
//!
//! # Checks in every variant
//!
//! | rule | typical violation |
//! |---|---|
//! | the outputs are as [`Expected`] | a record is taken from the inbox before there is room for its results |
//! | no output gets more records than [`Lane::room`](ardea_core::Lane::room) allows | all results of a record are written at once |
//! | every watermark is passed on exactly once and never runs backwards | `on_watermark` starts over when it is resumed, or returns done too early |
//! | with room and input, there is progress | a processor waits for an event that never comes |
//! | the inbox only shrinks | a chunk is swapped in |
//! | the outputs are the same after failures and restores ([`ProcessorTest::survives`]), also as several instances ([`ProcessorTest::keyed_input`], [`ProcessorTest::broadcast_input`]) | a snapshot contains changes made while it is written; a change is lost with an aborted snapshot |
//! | late records and dead letters are counted ([`ProcessorTest::expect_late`]) | a record is dropped silently |
//! | `close` after a stop at any call does not panic and leaks nothing ([`ProcessorTest::expect_no_leak`]) | a callback leaves incomplete state |
#![forbid(unsafe_code)]

mod random;

mod callback;
mod difference;
mod variant;

mod counted;
mod expected;
mod input;

mod captured_state;
mod driver;
mod failure_schedule;
mod lane;
mod run;
mod steps;
mod supplier_source;

mod processor_test;
mod report;
mod source_test;

mod external_harness;
mod harness;
mod test_sink;
mod test_source;

pub use ardea_core::{ManualClock, Timestamp};
pub use counted::{Counted, LiveCount};
pub use expected::{Emitted, Expected};
pub use external_harness::{CapturedEpoch, ExternalHarness, TestRandom};
pub use harness::Harness;
pub use input::TestInput;
pub use processor_test::ProcessorTest;
pub use report::{TestFailure, TestReport};
pub use source_test::SourceTest;
pub use test_sink::{Arrival, TestSink, collect};
pub use test_source::{Release, TestItem, TestSource};
