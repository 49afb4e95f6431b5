//! `ardea bench wordcount`: one measurement, with `--sweep` a series of them and a table, or with
//! `--ablation` the share of each optimization.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use ardea::command_line::Context;
use ardea::console::{Failure, print_error};
use ardea_bench::Report;
use ardea_bench::wordcount::{self, Sweep, WordcountParams, at_half_of};
use clap::ArgGroup;
use serde_json::Value;

use super::BenchArgs;
use super::table::shown;
use crate::columns::table;
use crate::stdout;

/// The options of this benchmark; each result contains their values.
#[derive(clap::Args, Debug)]
#[command(group(ArgGroup::new("pace").required(true).args(["rate", "max", "sweep", "ablation", "copy"]).multiple(true)))]
pub struct WordcountBenchArgs {
    #[command(flatten)]
    bench: BenchArgs<WordcountParams>,
    /// Run as fast as possible: measures throughput
    #[arg(long, conflicts_with = "rate")]
    max: bool,
    /// Measure each of these numbers of spouts; without --rate or --max, first as fast as possible
    /// for throughput, then at half the rate reached for latency
    #[arg(long, value_name = "N,N…", value_delimiter = ',', conflicts_with_all = ["parallelism", "repeat"])]
    sweep: Vec<u32>,
    /// Measure each number of spouts of a sweep both without and with acks
    #[arg(long, requires = "sweep", conflicts_with = "acks")]
    both: bool,
    /// Run this program beside each run of a sweep as fast as possible, with --acks, --parallelism
    /// and --seconds; its last line is a JSON object of figures
    #[arg(long, value_name = "PROGRAM", requires = "sweep")]
    peer: Option<PathBuf>,
    /// Folder for a table and a chart of a sweep
    #[arg(long, value_name = "DIR", requires = "sweep")]
    folder: Option<PathBuf>,
    /// Run the bolts in processes, and turn off each optimization of the transfer in turn, without
    /// and with acks
    #[arg(long, conflicts_with_all = ["rate", "acks", "sweep", "repeat"])]
    ablation: bool,
    /// Run as the process of a bolt (internal)
    #[arg(long, hide = true)]
    copy: bool,
}

/// Runs the benchmark.
pub fn run(args: &WordcountBenchArgs, context: &Context) -> Result<(), Failure> {
    let params = &args.bench.params;
    if args.copy {
        return Ok(wordcount::run_bolt()?);
    }
    if args.ablation {
        return run_ablation(params, context);
    }
    if args.sweep.is_empty() {
        return args.bench.run(context);
    }
    let sweep = Sweep {
        acks: match args.both {
            true => vec![false, true],
            false => vec![params.acks],
        },
        base: params.clone(),
        parallelisms: args.sweep.clone(),
    };
    let rows = run_sweep(&sweep, args, context)?;
    let Some(folder) = &args.folder else {
        return Ok(());
    };
    let figures: Vec<Value> = rows.iter().flat_map(Row::figures).collect();
    Ok(wordcount::write_sweep(folder, &figures)?)
}

/// Prints one JSON object per combination of optimizations; progress goes to standard error.
fn run_ablation(params: &WordcountParams, context: &Context) -> Result<(), Failure> {
    let mut printed = Ok(());
    let mut progress = |text: &str| {
        if !context.quiet {
            print_error(&format!("{text}\n"));
        }
    };
    wordcount::ablation(params, &mut progress, &mut |report| {
        if printed.is_ok() {
            printed = stdout::print_json(&report.to_json());
        }
    })?;
    printed
}

/// The measurements of one number of spouts.
struct Row {
    /// The measurement as fast as possible, or at the given rate.
    first: Report,
    /// The measurement at half the rate that the first one reached.
    half: Option<Report>,
    /// The figures of another system as fast as possible.
    peer: Option<Value>,
}

/// Measures each number of spouts; without a rate, measures it again at half the reached rate, for
/// latency. With a peer, it is measured too. Progress goes to standard error. On a terminal the
/// table goes to standard output, elsewhere one JSON object per run.
fn run_sweep(
    sweep: &Sweep,
    args: &WordcountBenchArgs,
    context: &Context,
) -> Result<Vec<Row>, Failure> {
    let at_half = sweep.base.rate.is_none() && !args.max;
    let for_people = !context.json && io::stdout().is_terminal();
    let runs = sweep.runs()?;
    let mut rows = Vec::new();
    for (number, run) in (1..).zip(&runs) {
        let mut progress = |text: &str| {
            if !context.quiet {
                let of = runs.len();
                print_error(&format!("run {number} of {of}: {text}\n"));
            }
        };
        let print = |report: &Report| match for_people {
            true => Ok(()),
            false => stdout::print_json(&report.to_json()),
        };
        let first = wordcount::run(run, &mut progress)?;
        print(&first)?;
        let half = at_half_of(run, &first).filter(|_| at_half);
        let half = half
            .map(|half| wordcount::run(&half, &mut progress))
            .transpose()?;
        half.iter().try_for_each(print)?;
        let peer = args.peer.as_ref();
        let peer = peer.map(|program| wordcount::run_peer(program, run));
        let peer = peer.transpose()?;
        if let Some(figures) = peer.as_ref().filter(|_| !for_people) {
            stdout::print_json(figures)?;
        }
        rows.push(Row { first, half, peer });
    }
    if for_people {
        stdout::print(&text(&rows))?;
    }
    Ok(rows)
}

/// Formats the table: throughput and efficiency of the first measurement of each row, latency of
/// the last.
fn text(rows: &[Row]) -> String {
    let headings = [
        ">parallelism",
        "acks",
        ">tuples/s",
        ">per cpu second",
        ">rate",
        ">p50 ms",
        ">p99 ms",
        ">p99.9 ms",
        ">rss MiB",
        ">failed",
        ">lost",
        ">peer tuples/s",
        ">peer per cpu second",
    ];
    let lines: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    format!("\n{}", table(&headings, &lines))
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let (first, last) = (&self.first, self.half.as_ref().unwrap_or(&self.first));
        let asked = |report: &Report, name: &str| shown(&report.to_json()[name]);
        let mut cells = vec![asked(first, "parallelism"), asked(first, "acks")];
        let figures = ["tuples_per_s", "tuples_per_cpu_s"];
        cells.extend(figures.map(|name| shown(first.figure(name))));
        cells.push(asked(last, "rate"));
        let figures = ["p50_ms", "p99_ms", "p999_ms"];
        cells.extend(figures.map(|name| shown(last.figure(name))));
        cells.push(shown(first.figure("rss_mb")));
        let both = |name: &str| -> u64 {
            let reports = [Some(first), self.half.as_ref()].into_iter().flatten();
            reports.filter_map(|it| it.figure(name).as_u64()).sum()
        };
        cells.extend(["failed", "lost"].map(|name| both(name).to_string()));
        let peer = self.peer.as_ref().unwrap_or(&Value::Null);
        cells.extend(["tuples_per_s", "tuples_per_cpu_s"].map(|name| shown(&peer[name])));
        cells
    }

    /// Returns the throughput of each system as fast as possible, with the latency at half of the
    /// rate.
    fn figures(&self) -> Vec<Value> {
        let mut own = self.first.to_json();
        if let Some(half) = &self.half {
            for name in ["p50_ms", "p99_ms"] {
                own[name] = half.figure(name).clone();
            }
        }
        [own].into_iter().chain(self.peer.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(rate: Value, per_second: u64, p50: Value) -> Report {
        Report {
            bench: "wordcount",
            parameters: vec![
                ("parallelism", json!(2)),
                ("acks", json!(true)),
                ("rate", rate),
            ],
            figures: vec![
                ("tuples_per_s", json!(per_second)),
                ("tuples_per_cpu_s", json!(per_second / 2)),
                ("p50_ms", p50),
                ("failed", json!(1)),
                ("lost", json!(0)),
            ],
        }
    }

    #[test]
    fn a_row_has_the_throughput_of_the_first_run_and_the_latency_of_the_second() {
        let first = report(Value::Null, 3_000_000, json!(90.5));
        let half = report(json!(1_500_000), 1_500_000, json!(0.5));
        let row = Row {
            first: first.clone(),
            half: Some(half),
            peer: Some(json!({ "tuples_per_s": 7 })),
        };
        let cells = row.cells();
        let told = ["2", "yes", "3,000,000", "1,500,000", "1,500,000", "0.5"];
        assert_eq!(cells[..6], told.map(String::from));
        assert_eq!(cells[9..], ["2", "0", "7", "–"].map(String::from));
        let figures = row.figures();
        assert_eq!((figures.len(), &figures[0]["p50_ms"]), (2, &json!(0.5)));
        let alone = Row {
            first,
            half: None,
            peer: None,
        };
        assert_eq!(alone.cells()[5], "90.5");
    }
}
