//! Drives any processor through hostile schedules and checks its contract.
//!
//! A [`Processor`](ardea_core::Processor) is called by a runtime that owes it nothing but the contract: records come one
//! by one or by the thousand, the outbox is full whenever it likes to be, a watermark interrupts anything, a job is
//! cancelled at any call. Code that works on a quiet day often breaks on one of these. This kit makes all of them happen
//! in a plain unit test, from a seed, without threads and without waiting.
//!
//! * [`ProcessorTest`] runs a processor through a matrix of schedules and compares its output in each;
//!   [`SourceTest`] does so for a source.
//! * [`TestInput`] is what goes in, [`Expected`] what must come out; [`Counted`] records find leaks.
//! * [`Harness`] drives one processor by hand, call by call; [`Driven`] one that talks to a real system.
//! * [`TestSource`] and [`TestSink`] are the ends of a whole job under test: the source pauses, ends, fails and panics
//!   where marks in its data say so, the sink keeps what arrives.
//! * [`ManualClock`] is a clock that stands until it is moved.
//!
//! # Invariants
//!
//! * The same test gives the same schedules, everywhere and always: all that is drawn comes from a seed.
//! * No test fails for the time that something took; slices are measured and reported.
//! * The kit breaks no contract itself: what it does to a processor, the engine may do.
//!
//! # Example: testing a processor of your own
//!
//! The processor below keeps the running total of its input. It must not add up a record that its outbox has no room
//! for, so it reads only as much as it can write. The test says what goes in and what must come out; the kit finds the
//! schedules.
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
//! # Example: what the kit catches
//!
//! This one reads everything and writes what fits. It passes any test whose outbox never fills; here it is caught, and
//! the report names the variant, the missing record and the last calls.
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
//! # What a processor lives through
//!
//! `init`; then, as the inputs bring them, `process` (with room or without, until the inbox is empty), `on_watermark`
//! with the least watermark of the inputs, `on_epoch` when all inputs have come to the epoch's end, `on_wake` when the
//! clock passes a time that it asked for, `on_edge_done` at an input's end. After the end of the last input comes
//! `on_watermark` with [`Watermark::END`](ardea_core::Watermark::END); then `complete`; then `close`. A run that is
//! cancelled jumps to `close` from any of these calls.
//!
//! One that [survives](ProcessorTest::survives) is also asked for cuts, before any of these calls, which it writes between others; it
//! dies, another one gets back what the last committed cut remembers, and what came since comes again.
//!
//! # What is checked in every variant
//!
//! | rule | how it is usually broken |
//! |---|---|
//! | the outputs are as [`Expected`] | a record is taken from the inbox before there is room for its results |
//! | no output gets more records than [`Lane::room`](ardea_core::Lane::room) said | results of one record are written all at once |
//! | every watermark is passed on exactly once, none runs backwards | `on_watermark` is resumed from its start, or returns done too early |
//! | with room and input, something moves | a processor waits for something that never comes |
//! | the inbox only shrinks | a chunk is swapped in |
//! | the outputs are the same when it dies and another goes on ([`ProcessorTest::survives`]), also as several instances ([`ProcessorTest::keyed_input`], [`ProcessorTest::broadcast_input`]) | what changes while a cut is written is written as it is by then; a change is forgotten with the cut that was given up |
//! | late records and dead letters are counted ([`ProcessorTest::expect_late`]) | a record disappears in silence |
//! | `close` after a stop at any call does not panic and leaks nothing ([`ProcessorTest::expect_no_leak`]) | a callback leaves things half done |
#![forbid(unsafe_code)]

mod random;

mod callback;
mod difference;
mod variant;

mod counted;
mod expected;
mod input;

mod driver;
mod kept;
mod lane;
mod lives;
mod run;
mod steps;
mod supplied;

mod processor_test;
mod report;
mod source_test;

mod driven;
mod harness;
mod test_sink;
mod test_source;

pub use ardea_core::{ManualClock, Timestamp};
pub use counted::{Counted, LiveCount};
pub use driven::{Driven, KeptEpoch, Lot};
pub use expected::{Emitted, Expected};
pub use harness::Harness;
pub use input::TestInput;
pub use processor_test::ProcessorTest;
pub use report::{TestFailure, TestReport};
pub use source_test::SourceTest;
pub use test_sink::{Arrival, TestSink, collect};
pub use test_source::{Release, TestItem, TestSource};
