//! The protocol between a bench and the workers of its job: a line of JSON each way, over a socket
//! in the bench's folder.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ardea::cluster::Modules;
use ardea_core::{Error, ErrorCode, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::usage::{cpu_time, monotonic_nanos, peak_resident_mb};

/// Poll interval of the wait for workers.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The file extension of final reports of workers.
const FINAL_REPORT_EXTENSION: &str = "left";

/// Timeout for a worker's answer; longer than pauses of the machine.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// A request from the bench to the workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Start; times are nanoseconds of the machine's monotonic clock.
    Begin {
        /// The time at which the first record is due.
        start: u64,
        /// The start of the measured interval.
        from: u64,
        /// The end of the measured interval.
        until: u64,
    },
    /// Start by the time of day, in microseconds since 1970. It suits loads in which all processes,
    /// restarted ones too, need the same start.
    BeginAt { start: i64, from: i64, until: i64 },
    /// Stop emitting; lost tuples are still replayed.
    Over,
    /// Reset the recorded moments.
    ResetMoments,
    /// Answer with a sample, including latencies if requested.
    ReportSample { latencies: bool },
}

/// The report of a worker.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) container: u32,
    /// The incarnation of the container.
    pub(crate) incarnation: u64,
    pub(crate) pid: u32,
    /// User and system time of the process so far, in nanoseconds.
    pub(crate) cpu_nanos: u64,
    pub(crate) rss_mb: Option<f64>,
    /// Counters and moments by name.
    pub(crate) numbers: BTreeMap<String, u64>,
    /// Pairs of nanoseconds and the number of such latencies.
    pub(crate) latencies: Vec<(u64, u64)>,
}

impl Sample {
    /// Returns the count of this name; zero if there is none.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.numbers.get(name).copied().unwrap_or(0)
    }

    /// Returns the moment of this name, if it has occurred.
    pub(crate) fn moment(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied().filter(|at| *at > 0)
    }
}

/// A load in a worker, as controlled by the bench.
pub(crate) trait ControlledLoad: Send + Sync + 'static {
    /// Handles an order of the bench.
    fn handle_order(&self, order: Order);
    /// Returns the counters and moments by name.
    fn numbers(&self) -> BTreeMap<String, u64>;
    /// Returns the latencies and their counts.
    fn latencies(&self) -> Vec<(u64, u64)>;
    /// Returns the modules of the worker.
    fn modules(&self) -> Modules {
        Modules::builtin()
    }
}

/// The identity of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerIdentity {
    pub(crate) container: u32,
    pub(crate) incarnation: u64,
}

/// Connects a worker to the bench, and answers its requests on a separate thread.
///
/// # Errors
/// [`ErrorCode::Network`] if the bench has ended.
pub(crate) fn serve_orders(
    socket: &Path,
    who: WorkerIdentity,
    attended: Arc<dyn ControlledLoad>,
) -> Result<()> {
    let gone = |error: std::io::Error| {
        Error::new(ErrorCode::Network, "the bench of this job has ended").because(error)
    };
    let mut stream = UnixStream::connect(socket).map_err(gone)?;
    send(&mut stream, &sample(who, &*attended, false)).map_err(gone)?;
    let asked = thread::Builder::new().name("bench".into());
    asked
        .spawn(move || {
            // An error means that the bench has ended.
            let _ = answer(stream, who, &*attended);
        })
        .map_err(gone)?;
    Ok(())
}

/// Writes the final report of an ending worker to a file beside the socket. The bench reads it
/// after the worker has ended.
///
/// # Errors
/// [`ErrorCode::WriteFailed`] if the file cannot be written.
pub(crate) fn write_final_report(
    socket: &Path,
    who: WorkerIdentity,
    attended: &dyn ControlledLoad,
) -> Result<()> {
    let failed = |error: std::io::Error| {
        let what = "a worker of the bench cannot write its final report";
        Error::new(ErrorCode::WriteFailed, what).because(error)
    };
    // The folder is gone if the bench has ended.
    let Some(folder) = socket.parent().filter(|folder| folder.is_dir()) else {
        return Ok(());
    };
    let told = serde_json::to_vec(&sample(who, attended, true));
    let told = told.map_err(|error| failed(error.into()))?;
    let name = format!("{}-{}", who.container, who.incarnation);
    let written = folder.join(format!("{name}.leaving"));
    std::fs::write(&written, told).map_err(failed)?;
    std::fs::rename(
        &written,
        folder.join(format!("{name}.{FINAL_REPORT_EXTENSION}")),
    )
    .map_err(failed)
}

/// Returns the final reports of ended workers, sorted by container.
pub(crate) fn read_final_reports(folder: &Path) -> Vec<Sample> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let left = paths.filter(|path| {
        path.extension()
            .is_some_and(|end| end == FINAL_REPORT_EXTENSION)
    });
    let read = left.filter_map(|path| serde_json::from_slice(&std::fs::read(path).ok()?).ok());
    let mut samples: Vec<Sample> = read.collect();
    samples.sort_by_key(|sample| (sample.container, sample.incarnation));
    samples
}

/// Returns the latencies of a histogram and their counts, as in a sample.
pub(crate) fn latencies_in(nanos: &Mutex<Histogram<u64>>) -> Vec<(u64, u64)> {
    let nanos = nanos.lock().unwrap_or_else(PoisonError::into_inner);
    let recorded = nanos.iter_recorded();
    recorded
        .map(|value| (value.value_iterated_to(), value.count_at_value()))
        .collect()
}

fn answer(
    stream: UnixStream,
    who: WorkerIdentity,
    attended: &dyn ControlledLoad,
) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        match serde_json::from_str(&line?)? {
            Order::ReportSample { latencies } => send(&mut out, &sample(who, attended, latencies))?,
            order => attended.handle_order(order),
        }
    }
    Ok(())
}

fn sample(who: WorkerIdentity, attended: &dyn ControlledLoad, latencies: bool) -> Sample {
    Sample {
        container: who.container,
        incarnation: who.incarnation,
        pid: std::process::id(),
        cpu_nanos: cpu_time().as_nanos() as u64,
        rss_mb: peak_resident_mb(),
        numbers: attended.numbers(),
        latencies: match latencies {
            true => attended.latencies(),
            false => Vec::new(),
        },
    }
}

fn send(stream: &mut UnixStream, what: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// The connections of a bench to its workers. A closed one is removed at the next request.
pub(crate) struct WorkerConnections {
    path: PathBuf,
    members: Arc<Mutex<Members>>,
}

#[derive(Default)]
struct Members {
    here: Vec<Member>,
    /// The orders sent to workers that connect later.
    first: Vec<Order>,
}

struct Member {
    container: u32,
    incarnation: u64,
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl WorkerConnections {
    /// Listens on a socket in this folder.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if the socket cannot be created.
    pub(crate) fn in_folder(folder: &Path) -> Result<Self> {
        let path = folder.join("bench.socket");
        let refused = |error: std::io::Error| {
            let what = format!("cannot listen at {}", path.display());
            Error::new(ErrorCode::WriteFailed, what)
                .because(error)
                .hint("choose a folder for temporary files with a shorter path (TMPDIR)")
        };
        let listener = UnixListener::bind(&path).map_err(refused)?;
        let members: Arc<Mutex<Members>> = Arc::default();
        let weak = Arc::downgrade(&members);
        thread::Builder::new()
            .name("bench".into())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    let Some(members) = weak.upgrade() else {
                        return;
                    };
                    // A connection without a valid first sample is dropped.
                    let _ = register_worker(stream, &members);
                }
            })
            .map_err(refused)?;
        Ok(WorkerConnections { path, members })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until `containers` workers have connected.
    pub(crate) fn wait_for(&self, containers: usize, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while lock(&self.members).here.len() < containers {
            if Instant::now() >= deadline {
                let what = format!("{containers} containers did not start in time");
                return Err(Error::new(ErrorCode::LimitReached, what)
                    .hint("set TMPDIR to a folder that is not deleted, and read the logs in it"));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Sends an order to all workers. A start order is also sent to workers that connect later.
    pub(crate) fn order(&self, order: Order) {
        let mut members = lock(&self.members);
        if matches!(order, Order::Begin { .. } | Order::BeginAt { .. }) {
            members.first = vec![order];
        }
        members
            .here
            .retain_mut(|member| send(&mut member.stream, &order).is_ok());
    }

    /// Returns the samples of the connected workers, sorted by container.
    pub(crate) fn samples(&self, latencies: bool) -> Vec<Sample> {
        let mut members = lock(&self.members);
        let asked = Order::ReportSample { latencies };
        members
            .here
            .retain_mut(|member| send(&mut member.stream, &asked).is_ok());
        let mut samples = Vec::new();
        members.here.retain_mut(|member| {
            let told = read_sample(&mut member.lines);
            let is_here = told.is_ok();
            samples.extend(told);
            is_here
        });
        samples.sort_by_key(|sample| (sample.container, sample.incarnation));
        samples
    }
}

impl Drop for WorkerConnections {
    fn drop(&mut self) {
        // The listening thread checks for the end at its next connection.
        self.members = Arc::default();
        let _ = UnixStream::connect(&self.path);
    }
}

fn lock(members: &Mutex<Members>) -> MutexGuard<'_, Members> {
    members.lock().unwrap_or_else(PoisonError::into_inner)
}

fn register_worker(stream: UnixStream, members: &Mutex<Members>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
    let mut lines = BufReader::new(stream.try_clone()?);
    let hello = read_sample(&mut lines)?;
    let mut member = Member {
        container: hello.container,
        incarnation: hello.incarnation,
        stream,
        lines,
    };
    let mut members = lock(members);
    for order in &members.first {
        send(&mut member.stream, order)?;
    }
    // Replaces the connection of an earlier incarnation.
    members.here.retain(|other| {
        other.container != member.container || other.incarnation > member.incarnation
    });
    members.here.push(member);
    Ok(())
}

fn read_sample(lines: &mut BufReader<UnixStream>) -> std::io::Result<Sample> {
    let mut line = String::new();
    lines.read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Stores the current time, unless a moment was noted already.
pub(crate) fn note_first(moment: &std::sync::atomic::AtomicU64) {
    use std::sync::atomic::Ordering::Relaxed;
    if moment.load(Relaxed) == 0 {
        // A concurrent thread was earlier.
        let _ = moment.compare_exchange(0, monotonic_nanos(), Relaxed, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counts(AtomicU64);

    impl ControlledLoad for Counts {
        fn handle_order(&self, order: Order) {
            if let Order::Begin { start, .. } = order {
                self.0.store(start, Ordering::Release);
            }
        }

        fn numbers(&self) -> BTreeMap<String, u64> {
            [("started".to_string(), self.0.load(Ordering::Acquire))].into()
        }

        fn latencies(&self) -> Vec<(u64, u64)> {
            vec![(1, 2)]
        }
    }

    #[test]
    fn orders_reach_all_and_whoever_comes_later_and_a_new_life_takes_the_place_of_the_old() {
        let folder = tempfile::tempdir().unwrap();
        let gathering = WorkerConnections::in_folder(folder.path()).unwrap();
        let come = |container, incarnation| {
            let who = WorkerIdentity {
                container,
                incarnation,
            };
            serve_orders(gathering.path(), who, Arc::new(Counts::default())).unwrap();
        };
        let patience = Duration::from_secs(20);
        come(2, 1);
        gathering.wait_for(1, patience).unwrap();
        let start = 7;
        gathering.order(Order::Begin {
            start,
            from: 0,
            until: 0,
        });
        come(1, 1);
        gathering.wait_for(2, patience).unwrap();
        let samples = gathering.samples(true);
        let told = samples.iter();
        let told: Vec<_> = told.map(|it| (it.container, it.count("started"))).collect();
        assert_eq!(told, [(1, 7), (2, 7)]);
        assert_eq!(samples[0].latencies, [(1, 2)]);
        assert_eq!(samples[0].moment("nothing"), None);
        come(2, 2);
        let deadline = Instant::now() + patience;
        loop {
            let samples = gathering.samples(false);
            let lives: Vec<_> = samples.iter().map(|sample| sample.incarnation).collect();
            if lives == [1, 2] {
                break;
            }
            assert!(Instant::now() < deadline, "{lives:?}");
        }
    }
}
