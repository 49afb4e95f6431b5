//! The program `ardea` as its users see it: the real binary, with its output, its exit codes and
//! its signals.

mod ardea;
#[path = "../../../instance/tests/javascript/mod.rs"]
mod javascript;
#[path = "../settings/mod.rs"]
mod settings;
#[path = "../stripped/mod.rs"]
mod stripped;

#[cfg(feature = "bench")]
mod bench;
#[cfg(feature = "s3")]
mod buckets;
mod checked;
#[cfg(feature = "bench")]
mod checkpoint_benches;
mod clusters;
mod completions;
mod examples;
mod exit_codes;
mod generate;
mod help;
mod inspect;
mod interrupts;
mod keyboard;
mod metastore;
mod named_pipes;
#[cfg(feature = "columns")]
mod nexmark_run;
mod orders;
mod pipes;
mod replays;
mod replicas;
mod served;
mod survives;
mod topology_files;
mod topology_guarantees;
