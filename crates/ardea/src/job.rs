//! Programs that are jobs: one executable runs its job in its own process, submits it to a cluster, and is the worker there.
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
//! Such a program is called so:
//!
//! | command line | what it does |
//! |---|---|
//! | `numbers [ARGS]`, `numbers run [OPTIONS] [ARGS]` | runs the job in this process, as `ardea run` does: with progress on a terminal and a summary, as JSON with `--json`; Ctrl-C drains it, or, with a `guarantee`, stops it so that it goes on when it is run again |
//! | `numbers snapshots FOLDER` | shows the snapshots in a folder |
//! | `numbers savepoint FOLDER --to PLACE` | writes a savepoint of the job in a folder |
//! | `numbers savepoint inspect PLACE` | shows a savepoint |
//! | `numbers diff OLD [ARGS]` | tells what would become of a savepoint's states, or of those in a folder |
//! | `numbers plan [OPTIONS] [ARGS]` | shows its graph, and how it would be packed |
//! | `numbers submit [OPTIONS] [ARGS]` | submits it to a cluster |
//! | `numbers upgrade --name JOB [OPTIONS] [ARGS]` | has it follow the program of a job on a cluster, with its state |
//! | `numbers help` | explains this |
//!
//! In reading order: [`main`](fn@main) reads the command line (`arguments`);
//! [`console`](crate::console) runs a [`Job`] here; [`demand`] says what it asks for,
//! [`check_settings`] whether settings can be meant; [`Prepared`] is a job that is known to fit,
//! [`submit`] brings it to a [`Target`], such as a [`RestTarget`].
//!
//! # Invariants
//!
//! * The job is described anew in every process, from the same arguments: the closure given to [`main`](fn@main) has to depend on nothing else.
//! * What can't be packed is refused before anything is stored.
//! * However submitting ends, there is a whole job or none.

mod arguments;
mod check;
mod console;
mod dead_letters;
mod demand;
mod failure;
mod files;
mod keeps;
mod kept;
mod kept_settings;
mod locate;
mod main;
mod prepare;
mod profile;
mod rest;
mod saved;
mod scratch;
mod settled;
mod stays;
mod submit;
mod target;
mod upgrade;
pub(crate) mod words;
mod worker;

pub use ardea_engine::Job;
pub(crate) use check::check_here;
pub use check::{check_forms, check_settings, unknown_names};
pub use console::{Console, told};
pub(crate) use dead_letters::of_process as open_dead_letters;
pub use demand::demand;
pub use failure::{exit_code, told_as_json, told_as_text};
pub use files::packaged;
pub use kept::KeptJob;
pub use kept_settings::KeptSettings;
pub use locate::{client_of, open_state, state_of};
pub use main::{main, main_with};
pub use prepare::{Prepared, Wanted};
pub use profile::{read_settings, read_settings_over, resolver, schema};
pub use rest::{RestTarget, Store};
pub use saved::{Comparison, SavedJob, remembered, told_states};
pub use settled::{Settled, Settling};
pub use submit::{Step, Submitted, Target, submit};
pub use target::connect;
pub use upgrade::{UPGRADES_WITHIN, Upgraded, told_of_upgrade, upgrade};
pub use worker::{as_worker, work};
