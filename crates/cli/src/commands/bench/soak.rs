//! `ardea bench soak`: its options, and a line for each look at what runs.

use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use ardea_bench::Report;
use ardea_bench::wordcount::{SoakParams, WordcountParams, soak};

use super::table;
use crate::args::{count, duration};
use crate::context::{Context, check_threads};
use crate::failure::{Failure, print_error};
use crate::stdout;

/// The options; the last object carries each under its own name.
#[derive(clap::Args, Debug)]
pub struct SoakBenchArgs {
    /// How many distinct words are generated
    #[arg(long, value_name = "N", value_parser = count, default_value = "450000")]
    words: u64,
    /// Take the words from this file, one a line
    #[arg(long, value_name = "FILE", conflicts_with = "words")]
    words_file: Option<PathBuf>,
    /// Spouts, and as many bolts; one for each container unless told
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    parallelism: Option<u32>,
    /// Processes; more than one are containers of a cluster on this machine, which is made for the bench
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    containers: u32,
    /// Follow every tuple until it has been counted
    #[arg(long)]
    acks: bool,
    /// Tuples a second, over all spouts; as fast as possible unless told
    #[arg(long, value_name = "N", value_parser = count)]
    rate: Option<u64>,
    /// How many tuples each spout may have pending, with acks; as many as the queues hold unless told
    #[arg(long, value_name = "N", requires = "acks")]
    max_pending: Option<NonZeroUsize>,
    /// How long is measured
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2h")]
    duration: Duration,
    /// How long runs before that
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m")]
    warmup: Duration,
    /// How often to look at memory, files, threads and throughput
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m")]
    every: Duration,
    /// Cooperative threads, of each container
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// How long an idle thread looks for work before it sleeps: more is steadier, and burns up to a whole core
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10us")]
    spin: Duration,
}

/// Measures; a line of JSON for each look, and one at the end, or on a terminal text.
pub fn run(args: &SoakBenchArgs, context: &Context) -> Result<(), Failure> {
    check_threads(args.threads)?;
    let params = SoakParams {
        wordcount: WordcountParams {
            words: usize::try_from(args.words).unwrap_or(usize::MAX),
            words_file: args.words_file.clone(),
            parallelism: args.parallelism,
            containers: args.containers,
            threads: args.threads,
            acks: args.acks,
            rate: args.rate,
            max_pending: args.max_pending,
            duration: args.duration,
            warmup: args.warmup,
            spin: args.spin,
            baseline: false,
        },
        every: args.every,
    };
    let for_people = !context.json && io::stdout().is_terminal();
    let mut printed = Ok(());
    let mut progress = |text: &str| {
        if !context.quiet {
            print_error(&format!("{text}\n"));
        }
    };
    let report = soak(&params, &mut progress, &mut |sample| {
        printed = match for_people {
            true => stdout::print(&line(sample)),
            false => stdout::print_json(&sample.to_json()),
        };
        match printed {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    printed?;
    match for_people {
        true => {
            let figures = vec![(String::new(), report.figures.clone())];
            stdout::print(&table::of(&report, &figures))
        }
        false => stdout::print_json(&report.to_json()),
    }
}

/// What was seen at a look, as people read it.
fn line(sample: &Report) -> String {
    let of = |name: &str| table::shown(sample.figure(name));
    format!(
        "{:>6} s  {:>13} tuples/s  {:>13} per cpu second  {:>8} MiB  {:>4} files  {:>3} threads  {} failed\n",
        sample
            .figure("elapsed_s")
            .as_f64()
            .map_or(String::new(), |seconds| format!("{seconds:.0}")),
        of("tuples_per_s"),
        of("tuples_per_cpu_s"),
        of("rss_mb"),
        of("open_files"),
        of("os_threads"),
        of("failed"),
    )
}
