//! A run: the state is filled and stored in a checkpoint, records flow, a worker is killed, and
//! finally all published results are read.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ardea_connectors::files;
use ardea_core::{Clock, Parallelism, Result};
use ardea_pipeline::Pipeline;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::FailoverParams;
use crate::cluster::{BenchJob, Kind, Load, Sample, merged};
use crate::long_running::accounts::{Accounts, Receipt};
use crate::long_running::commits;
use crate::long_running::fixture::{Fixture, Kill, Victim, published_in, rss_mb, spent};
use crate::long_running::published::{self, Verdict};
use crate::long_running::watch::ResultObserver;
use crate::noise;
use crate::report::{Field, Report, Unit, latency, machine_of, rounded, seconds};

/// The results are complete after this time without new ones, if the job has recovered.
const QUIET_TIME: Duration = Duration::from_secs(2);

/// The same, if no recovery was observed.
const QUIET_TIME_WITHOUT_RECOVERY: Duration = Duration::from_secs(30);

/// The parameters of a run, sent to each container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AccountsLoad {
    accounts: Accounts,
    out: PathBuf,
}

impl AccountsLoad {
    /// Returns the job of a container, and the handle by which the bench controls it.
    pub(crate) fn job(&self) -> Result<BenchJob> {
        let watch = ResultObserver::new(false)?;
        let (sees, clock) = (Arc::clone(&watch), Clock::system());
        let p = Pipeline::new("accounts");
        let receipts = self.accounts.receipts(&p, &watch);
        let published =
            receipts
                .rebalance()
                .parallelism(Parallelism::ONE)
                .map(move |receipt: Receipt| {
                    sees.record_results(clock.wall(), [receipt.due()].into_iter());
                    format!("{} {}", receipt.account, receipt.number)
                });
        let sink = files::write_lines(self.out.join("receipts.txt")).rotate_with_epochs();
        published.write_to(sink.build());
        Ok((Box::new(p), watch))
    }
}

/// Runs the benchmark; `progress` receives status texts.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters are
/// invalid; errors of the cluster or the job.
pub fn run(params: &FailoverParams, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    params.check()?;
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(params.workers * params.threads, params.duration)?;
    progress("starting a cluster");
    let accounts = Accounts {
        accounts: params.keys,
        rate: params.rate,
        long: params.warmup + params.duration,
        instances: params.workers,
    };
    let size = (params.hosts(), params.workers);
    let mut stand = Fixture::start("accounts", size, &params.settings(), |socket| {
        let out = published_in(&socket);
        Load::new(socket, Kind::Accounts(AccountsLoad { accounts, out }))
    })?;
    progress("filling the state");
    stand.wait_until_filled(params.keys)?;
    if params.guarantee.keeps_state() {
        progress("waiting for a full checkpoint");
        stand.wait_for_checkpoint()?;
    }
    progress("warming up");
    let plan = stand.begin(params.warmup, params.duration);
    progress("measuring");
    stand.poll_until(plan.from + params.at);
    progress("killing a worker");
    let killed = stand.kill(Victim::Worker)?;
    let recovered = stand.wait_until_recovered(&killed, Victim::Worker);
    stand.poll_until(plan.until);
    let mut figures = cluster_figures(&stand, &killed, recovered);
    let hosts_cpu = stand.host_cpu_time();
    progress("waiting for all results");
    let paid = accounts.paid();
    let (last, is_over) = stand.end(match recovered {
        Some(_) => QUIET_TIME,
        None => QUIET_TIME_WITHOUT_RECOVERY,
    });
    figures.extend(measured(&last, params.duration)?);
    figures.push(("host_cpu_seconds", json!(seconds(hosts_cpu))));
    let verdict = is_over.then(|| verdict(&stand, paid)).transpose()?;
    figures.push(("lost", json!(verdict.map(|verdict| verdict.lost))));
    figures.push(("duplicated", json!(verdict.map(|it| it.duplicated))));
    figures.extend(match params.guarantee.keeps_state() {
        true => stand.commits().figures(),
        false => commits::none(),
    });
    figures.extend(machine_of(
        spent(&last, params.duration),
        rss_mb(&last),
        noise,
    ));
    Ok(Report {
        bench: "failover",
        parameters: params.fields(),
        figures,
    })
}

/// Returns the figures of the cluster.
fn cluster_figures(stand: &Fixture, killed: &Kill, recovered: Option<Duration>) -> Vec<Field> {
    let millis = |time: Duration| rounded(time.as_secs_f64() * 1e3, 1e3);
    vec![
        ("recovery_ms", json!(recovered.map(millis))),
        ("detected_ms", json!(stand.noted_ms("was given up", killed))),
        ("joined_ms", json!(stand.noted_ms("has joined", killed))),
    ]
}

/// Returns the figures of results, from the process of the sink.
fn measured(last: &[Sample], duration: Duration) -> Result<Vec<Field>> {
    let sink = last.iter().max_by_key(|sample| sample.count("results"));
    let of = |name: &str| -> Value {
        let nanos = sink.map(|sample| sample.count(name)).filter(|it| *it > 0);
        json!(nanos.map(|nanos| rounded(nanos as f64 / 1e6, 1e3)))
    };
    let results: u64 = last.iter().map(|sample| sample.count("results")).sum();
    let mut figures: Vec<Field> = vec![
        ("gap_ms", of("longest_pause")),
        ("spike_ms", of("latest")),
        ("duration_s", json!(seconds(duration))),
        ("results", json!(results)),
    ];
    figures.extend(latency(&merged(last)?, Unit::Millis));
    Ok(figures)
}

fn verdict(stand: &Fixture, paid: Vec<u64>) -> Result<Verdict> {
    let receipts: Vec<(u64, u64)> = published::lines(&stand.published(), |line| {
        let (account, number) = line.split_once(' ')?;
        Some((account.parse().ok()?, number.parse().ok()?))
    })?;
    Ok(published::of_receipts(receipts, paid))
}
