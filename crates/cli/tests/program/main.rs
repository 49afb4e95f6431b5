//! The program `ardea` as its users meet it: the real binary, with its output, its exit codes and its signals.

mod ardea;
#[path = "../settings/mod.rs"]
mod settings;
#[path = "../stripped/mod.rs"]
mod stripped;

mod bench;
#[cfg(feature = "s3")]
mod buckets;
mod checked;
mod clusters;
mod completions;
mod exit_codes;
mod generate;
mod help;
mod interrupts;
mod jobs;
mod keyboard;
mod named_pipes;
mod orders;
mod pipes;
mod served;
mod state;
mod survival_benches;
mod survives;
mod topology_files;
mod twins;
