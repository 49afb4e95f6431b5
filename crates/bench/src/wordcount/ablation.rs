//! Word count with its bolts in processes: the share of each optimization of the transfer.
//!
//! After "Twitter Heron: Towards Extensible Streaming Engines", section VI-B.

use std::thread;
use std::time::Duration;

use ardea::instance::TransferOptions;
use ardea_core::Result;
use serde_json::json;

use super::isolated::{self, Processes};
use super::params::WordcountParams;
use super::run::{Embedded, counted};
use super::words::Words;
use crate::bounds::refused;
use crate::noise::{self, Noise};
use crate::report::{Field, Report, machine_of, rounded};
use crate::usage::{
    Spent, Stopwatch, peak_resident_mb, process_cpu_time, reset_peak, resources_of,
};

/// The combinations of optimizations: all, all but one, and none.
const COMBINATIONS: [TransferOptions; 5] = {
    let all = TransferOptions {
        reuses_buffers: true,
        shares_payloads: true,
        rings: true,
    };
    [
        all,
        TransferOptions {
            reuses_buffers: false,
            ..all
        },
        TransferOptions {
            shares_payloads: false,
            ..all
        },
        TransferOptions {
            rings: false,
            ..all
        },
        TransferOptions {
            reuses_buffers: false,
            shares_payloads: false,
            rings: false,
        },
    ]
};

/// Measures each combination, without and with acks; `print` receives each report. Its
/// `ratio_to_all_on` compares the tuples per CPU second.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters are invalid;
/// errors of reading the words, and of the topology.
pub fn ablation(
    params: &WordcountParams,
    progress: &mut dyn FnMut(&str),
    print: &mut dyn FnMut(&Report),
) -> Result<()> {
    params.check()?;
    if params.containers > 1 || params.rate.is_some() {
        return Err(refused("the ablation was given containers or a rate")
            .hint("it runs as fast as possible, with one process for each bolt"));
    }
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(params.threads, params.duration)?;
    for acks in [false, true] {
        let mut all_on = None;
        for options in COMBINATIONS {
            let params = WordcountParams {
                acks,
                max_pending: params.max_pending.filter(|_| acks),
                ..params.clone()
            };
            let (mut report, per_cpu) = run(&params, options, noise, progress)?;
            all_on = all_on.or(per_cpu);
            let ratio = per_cpu
                .zip(all_on)
                .map(|(here, all)| rounded(here / all, 1e3));
            report.figures.push(("ratio_to_all_on", json!(ratio)));
            print(&report);
        }
    }
    Ok(())
}

/// Measures one combination. Returns the report, and the tuples per CPU second.
fn run(
    params: &WordcountParams,
    options: TransferOptions,
    noise: Noise,
    progress: &mut dyn FnMut(&str),
) -> Result<(Report, Option<f64>)> {
    reset_peak();
    let words = Words::of(params.words_file.as_deref(), params.words)?;
    let processes = Processes::default();
    let run = Embedded::start_with(params, words, |shared| {
        isolated::topology(shared, params, options, &processes)
    })?;
    run.warm_up(params, progress);
    let bolts = isolated::ids(&processes);
    let cpu_of_bolts = || -> Duration {
        let times = bolts.iter().filter_map(|id| process_cpu_time(*id));
        times.sum()
    };
    let (meanwhile, done, before) = (Stopwatch::begin(), run.done(), cpu_of_bolts());
    thread::sleep(params.duration);
    let of_bolts = cpu_of_bolts().saturating_sub(before);
    let here = meanwhile.spent();
    let tuples = run.done() - done;
    let resident = bolts.iter().filter_map(|id| resources_of(*id));
    let resident: f64 = resident.map(|bolt| bolt.rss_mb).sum();
    let ended = run.end()?;
    let spent = Spent {
        cpu: here.cpu + of_bolts,
        ..here
    };
    let rss_mb = peak_resident_mb().map(|mb| rounded(mb + resident, 10.0));
    let mut figures = counted(tuples, spent);
    figures.extend(ended.figures());
    figures.extend(machine_of(spent, rss_mb, noise));
    let mut parameters = params.fields(ended.shared.words.len());
    parameters.extend(of_options(options));
    let report = Report {
        bench: "wordcount-ablation",
        parameters,
        figures,
    };
    Ok((report, spent.per_cpu_second(tuples)))
}

/// Returns the optimizations.
fn of_options(options: TransferOptions) -> Vec<Field> {
    vec![
        ("pools", json!(options.reuses_buffers)),
        ("in_place", json!(options.shares_payloads)),
        ("rings", json!(options.rings)),
    ]
}
