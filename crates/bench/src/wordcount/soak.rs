//! Word count for hours: checks memory growth and throughput drift.

mod params;
mod verdict;

pub use params::SoakParams;

use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::Result;

use super::params::WordcountParams;
use super::run::{Embedded, counted};
use super::spread::{self, whole_run};
use super::words::Words;
use crate::cluster::{DistributedRun, merged};
use crate::noise;
use crate::report::{Field, Report, Unit, latency, machine_of, rounded};
use crate::usage::{ResourceUsage, Spent, cpu_time, resources_of};

use verdict::{Sample, verdict, whole};

/// Runs word count for the given time, and samples it periodically. `each` receives each sample and
/// may end the run; the report then covers the time until there. `progress` receives status texts.
///
/// # Errors
/// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if the parameters are
/// invalid; those of [`run`](super::run()).
pub fn soak(
    params: &SoakParams,
    progress: &mut dyn FnMut(&str),
    each: &mut dyn FnMut(&Report) -> ControlFlow<()>,
) -> Result<Report> {
    params.check()?;
    let job = &params.wordcount;
    let words = Words::of(job.words_file.as_deref(), job.words)?;
    let parameters = params.fields(words.len());
    progress("measuring the machine's background noise");
    let noise = noise::measure_noise(job.containers * job.threads, job.duration)?;
    let soaked = SoakRun::start(job, words, progress)?;
    let samples = take_samples(&soaked, params, each)?;
    let ended = soaked.end()?;
    let whole = whole(&samples);
    let mut figures = counted(whole.tuples, whole.spent);
    figures.extend(verdict(&samples));
    figures.extend(ended);
    let most_rss = samples.iter().map(|sample| sample.held.rss_mb);
    let most_rss = most_rss.reduce(f64::max).map(|mb| rounded(mb, 10.0));
    figures.extend(machine_of(whole.spent, most_rss, noise));
    Ok(Report {
        bench: "soak",
        parameters,
        figures,
    })
}

/// Word count in this process, or in several.
enum SoakRun {
    Here(Embedded),
    There(DistributedRun),
}

/// The counters and processes of the run at a moment.
struct SoakSample {
    at: Instant,
    done: u64,
    failed: u64,
    cpu: Duration,
    pids: Vec<u32>,
}

impl SoakRun {
    fn start(
        params: &WordcountParams,
        words: Words,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        if params.containers > 1 {
            let spread = spread::start(params, progress)?;
            spread.warm_up(params.warmup, params.duration, progress);
            return Ok(SoakRun::There(spread));
        }
        let embedded = Embedded::start(params, words)?;
        embedded.warm_up(params, progress);
        Ok(SoakRun::Here(embedded))
    }

    fn take_reading(&self) -> Result<SoakSample> {
        Ok(match self {
            SoakRun::Here(embedded) => SoakSample {
                at: Instant::now(),
                done: embedded.done(),
                failed: embedded.failed(),
                cpu: cpu_time(),
                pids: vec![std::process::id()],
            },
            SoakRun::There(spread) => {
                let seen = spread.take_sample()?;
                let workers = seen.samples.iter().map(|sample| sample.pid);
                SoakSample {
                    at: seen.at,
                    done: seen.count("done"),
                    failed: seen.count("failed"),
                    cpu: seen.cpu(),
                    pids: workers.chain(spread.host_pids()).collect(),
                }
            }
        })
    }

    fn end(self) -> Result<Vec<Field>> {
        match self {
            SoakRun::Here(embedded) => Ok(embedded.end()?.figures()),
            SoakRun::There(spread) => {
                let last = spread.end()?;
                let mut figures = latency(&merged(&last)?, Unit::Millis);
                figures.extend(whole_run(&last));
                Ok(figures)
            }
        }
    }
}

/// Takes samples until the time is over, or until `each` ends the run.
fn take_samples(
    soaked: &SoakRun,
    params: &SoakParams,
    each: &mut dyn FnMut(&Report) -> ControlFlow<()>,
) -> Result<Vec<Sample>> {
    let begun = soaked.take_reading()?;
    let until = begun.at + params.wordcount.duration;
    let (mut samples, mut before, mut due) = (Vec::new(), begun.at, begun.at);
    let (mut done, mut cpu) = (begun.done, begun.cpu);
    while due + params.every <= until {
        due += params.every;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let look = soaked.take_reading()?;
        let held: Vec<ResourceUsage> = look.pids.iter().copied().filter_map(resources_of).collect();
        let sample = Sample {
            elapsed: look.at - begun.at,
            tuples: look.done.saturating_sub(done),
            spent: Spent {
                wall: look.at - before,
                cpu: look.cpu.saturating_sub(cpu),
            },
            processes: held.len(),
            held: together(&held),
            failed: look.failed,
        };
        (before, done, cpu) = (look.at, look.done, look.cpu);
        let report = sample.report(samples.len() + 1);
        samples.push(sample);
        if each(&report).is_break() {
            break;
        }
    }
    Ok(samples)
}

fn together(held: &[ResourceUsage]) -> ResourceUsage {
    ResourceUsage {
        rss_mb: held.iter().map(|it| it.rss_mb).sum(),
        files: held.iter().map(|it| it.files).sum(),
        threads: held.iter().map(|it| it.threads).sum(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn short(containers: u32) -> SoakParams {
        SoakParams {
            wordcount: WordcountParams {
                words: 1_000,
                containers,
                duration: Duration::from_millis(400),
                warmup: Duration::from_millis(20),
                ..SoakParams::default().wordcount
            },
            every: Duration::from_millis(100),
        }
    }

    #[test]
    fn each_sample_is_told_and_the_last_word_is_of_all_of_them() {
        let mut seen = Vec::new();
        let report = soak(&short(1), &mut |_| {}, &mut |sample| {
            seen.push(sample.to_json());
            ControlFlow::Continue(())
        });
        let report = report.unwrap();
        assert_eq!(seen.len(), 4, "{seen:?}");
        assert_eq!(seen[3]["sample"], 4);
        for name in ["rss_mb", "open_files", "os_threads"] {
            assert!(seen[0][name].as_f64() > Some(0.0), "{name}: {seen:?}");
        }
        let tuples = seen.iter().map(|sample| sample["tuples"].as_u64().unwrap());
        let tuples = tuples.sum::<u64>();
        assert!(tuples > 0, "{seen:?}");
        assert_eq!(report.figure("tuples"), &json!(tuples));
        assert_eq!(report.figure("lost"), &json!(0));
        assert!(report.figure("held").is_boolean(), "{report:?}");
    }

    #[test]
    fn the_callback_can_end_the_run() {
        let report = soak(&short(1), &mut |_| {}, &mut |_| ControlFlow::Break(()));
        assert_eq!(report.unwrap().figure("samples"), &json!(1));
    }
}
