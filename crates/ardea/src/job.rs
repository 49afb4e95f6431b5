//! Job programs: one executable runs its job in its own process, submits it to a cluster, and is
//! the worker process there.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use ardea::topology::*;
//! # struct Numbers;
//! # impl Spout for Numbers {
//! #     fn outputs(&self) -> Outputs { Outputs::fields(["number"]) }
//! #     fn next_tuple(&mut self, _: &mut SpoutCollector<'_>) -> Outcome<Next> { Ok(Next::Done) }
//! # }
//! # struct Print;
//! # impl Bolt for Print {
//! #     fn execute(&mut self, _: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome { Ok(()) }
//! # }
//!
//! fn main() -> ExitCode {
//!     ardea::main(|_arguments| {
//!         let mut topology = TopologyBuilder::new("numbers");
//!         topology.spout("numbers", 1, || Numbers);
//!         topology.bolt("print", 2, || Print).shuffle("numbers");
//!         topology.build()
//!     })
//! }
//! ```
//!
//! The command lines of such a program:
//!
//! | command line | effect |
//! |---|---|
//! | `numbers [ARGS]`, `numbers run [OPTIONS] [ARGS]` | runs the job in this process, as `ardea run` does: with progress on a terminal and a summary, as JSON with `--json`; Ctrl-C drains it, or, with a `guarantee`, stops it with a checkpoint from which the next run continues |
//! | `numbers checkpoints JOB\|FOLDER` | shows the checkpoints of a job on a cluster, or in a folder |
//! | `numbers savepoint JOB\|FOLDER --to PLACE` | writes a savepoint of such a job |
//! | `numbers savepoint inspect PLACE` | shows a savepoint |
//! | `numbers diff OLD [ARGS]` | checks whether this program can restore the states of a savepoint or of a job's folder |
//! | `numbers replay --vertex STEP [OPTIONS] [ARGS]` | runs recorded micro-batches of one instance again |
//! | `numbers plan [OPTIONS] [ARGS]` | shows its graph, and how it would be packed |
//! | `numbers submit [OPTIONS] [ARGS]` | submits it to a cluster |
//! | `numbers upgrade --name JOB [OPTIONS] [ARGS]` | upgrades a job on a cluster to this program, keeping its state |
//! | `numbers help [COMMAND]` | prints the help |
//!
//! In reading order: [`command_line`](crate::command_line) reads the command line;
//! [`console`](crate::console) runs a [`Job`] here; [`demand`] computes its resource demand;
//! [`check_settings`] validates settings; [`Prepared`] is a job that has been packed; [`submit`]
//! sends the job to a [`Target`].
//!
//! # Invariants
//!
//! * Every process builds the job from the same arguments: the closure given to
//!   [`main`](fn@crate::main) must depend on nothing else.
//! * A job that can't be packed is refused before anything is stored.
//! * Submitting is atomic: afterwards the cluster has the whole job or none.

mod check;
mod checkpoint_report;
mod config_sources;
mod console;
mod dead_letter_sample;
mod demand;
mod files;
mod guarantee_check;
mod locality_check;
mod locate;
mod prepare;
mod retained_settings;
mod savepoint_report;
mod startup_watch;
mod submit;
mod target;
mod temp_dir;
mod upgrade;
mod worker;

pub use ardea_engine::Job;
pub use check::{check_forms, check_settings, unknown_names};
pub use checkpoint_report::CheckpointListing;
pub use config_sources::{read_settings, read_settings_over, resolver, schema};
pub use console::{Console, submission_text};
pub use demand::demand;
pub(crate) use demand::logical_plan;
pub use files::packaged;
pub use locate::{client_of, open_state, state_of};
pub use prepare::{Prepared, SubmissionSpec, own_name};
pub use retained_settings::RetainedSettings;
pub use savepoint_report::{Comparison, SavepointReport, parse_states, program_states};
pub use startup_watch::{StartOutcome, StartupWatch};
pub use submit::{Step, Submitted, submit};
pub use target::{Target, connect, runtime};
pub use upgrade::{UPGRADE_TIMEOUT, Upgraded, upgrade, upgrade_text};
pub use worker::{as_worker, work};
