//! How a bench asks the workers of its job: a line of JSON each way, over a socket in the bench's folder.

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

/// How often it is looked whether all workers are there.
const LOOK: Duration = Duration::from_millis(2);

/// What the files of workers end with that are gone.
const LEFT: &str = "left";

/// How long a worker may take to answer; longer than a machine stands still.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// What a bench wants of the workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Begin; times are nanoseconds of the machine's monotonic clock.
    Begin {
        /// When the first record is due.
        start: u64,
        /// Latencies count of what is due from then on…
        from: u64,
        /// … until then.
        until: u64,
    },
    /// The same by the time of day, in microseconds since 1970, where all processes have to take the same time for the beginning.
    BeginAt { start: i64, from: i64, until: i64 },
    /// Emit nothing any more but what is owed.
    Over,
    /// Forget the moments that were noted.
    Forget,
    /// Answer with a sample, and with the latencies if wanted.
    Tell { latencies: bool },
}

/// What a worker tells of itself.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Its container.
    pub(crate) container: u32,
    /// Which life of it.
    pub(crate) incarnation: u64,
    pub(crate) pid: u32,
    /// User and system time of the process so far, in nanoseconds.
    pub(crate) cpu_nanos: u64,
    pub(crate) rss_mb: Option<f64>,
    /// What it counted, and the moments that it noted, by name.
    pub(crate) numbers: BTreeMap<String, u64>,
    /// Nanoseconds, and how often.
    pub(crate) latencies: Vec<(u64, u64)>,
}

impl Sample {
    /// The count of this name; zero if it has none.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.numbers.get(name).copied().unwrap_or(0)
    }

    /// The moment of this name, if it has come.
    pub(crate) fn moment(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied().filter(|at| *at > 0)
    }
}

/// What runs in a worker, as the bench sees it.
pub(crate) trait Attended: Send + Sync + 'static {
    /// Does what is wanted.
    fn obey(&self, order: Order);
    /// Its numbers.
    fn numbers(&self) -> BTreeMap<String, u64>;
    /// Its latencies.
    fn latencies(&self) -> Vec<(u64, u64)>;
    /// What its worker is made of.
    fn modules(&self) -> Modules {
        Modules::builtin()
    }
}

/// Which worker it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) container: u32,
    pub(crate) incarnation: u64,
}

/// In a worker: tells the bench that it is there, and does what that wants, on a thread of its own.
///
/// # Errors
/// [`ErrorCode::Network`] if the bench is gone.
pub(crate) fn attend(socket: &Path, who: Who, attended: Arc<dyn Attended>) -> Result<()> {
    let gone = |error: std::io::Error| {
        Error::new(ErrorCode::Network, "the bench that this job is of is gone").because(error)
    };
    let mut stream = UnixStream::connect(socket).map_err(gone)?;
    send(&mut stream, &sample(who, &*attended, false)).map_err(gone)?;
    let asked = thread::Builder::new().name("bench".into());
    asked
        .spawn(move || {
            // When the bench is gone nobody asks any more.
            let _ = answer(stream, who, &*attended);
        })
        .map_err(gone)?;
    Ok(())
}

/// In a worker that ends: leaves all that it has to tell beside the socket, for a bench that asks when it is gone.
///
/// # Errors
/// [`ErrorCode::WriteFailed`] if it can't.
pub(crate) fn farewell(socket: &Path, who: Who, attended: &dyn Attended) -> Result<()> {
    let failed = |error: std::io::Error| {
        let what = "a bench's worker can't leave what it has counted";
        Error::new(ErrorCode::WriteFailed, what).because(error)
    };
    // A bench that is over has taken its folder along.
    let Some(folder) = socket.parent().filter(|folder| folder.is_dir()) else {
        return Ok(());
    };
    let told = serde_json::to_vec(&sample(who, attended, true));
    let told = told.map_err(|error| failed(error.into()))?;
    let name = format!("{}-{}", who.container, who.incarnation);
    let written = folder.join(format!("{name}.leaving"));
    std::fs::write(&written, told).map_err(failed)?;
    std::fs::rename(&written, folder.join(format!("{name}.{LEFT}"))).map_err(failed)
}

/// What workers have left that are gone, sorted by container.
pub(crate) fn left_in(folder: &Path) -> Vec<Sample> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let left = paths.filter(|path| path.extension().is_some_and(|end| end == LEFT));
    let read = left.filter_map(|path| serde_json::from_slice(&std::fs::read(path).ok()?).ok());
    let mut samples: Vec<Sample> = read.collect();
    samples.sort_by_key(|sample| (sample.container, sample.incarnation));
    samples
}

/// How often each latency was recorded, as samples tell it.
pub(crate) fn latencies_in(nanos: &Mutex<Histogram<u64>>) -> Vec<(u64, u64)> {
    let nanos = nanos.lock().unwrap_or_else(PoisonError::into_inner);
    let recorded = nanos.iter_recorded();
    recorded
        .map(|value| (value.value_iterated_to(), value.count_at_value()))
        .collect()
}

fn answer(stream: UnixStream, who: Who, attended: &dyn Attended) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        match serde_json::from_str(&line?)? {
            Order::Tell { latencies } => send(&mut out, &sample(who, attended, latencies))?,
            order => attended.obey(order),
        }
    }
    Ok(())
}

fn sample(who: Who, attended: &dyn Attended, latencies: bool) -> Sample {
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

/// The workers that have come, as the bench sees them. One that is gone is forgotten when it is asked.
pub(crate) struct Gathering {
    path: PathBuf,
    members: Arc<Mutex<Members>>,
}

#[derive(Default)]
struct Members {
    here: Vec<Member>,
    /// What whoever comes is told.
    first: Vec<Order>,
}

struct Member {
    container: u32,
    incarnation: u64,
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Gathering {
    /// At a socket in this folder.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if none can be made.
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
                    // One that says nothing sensible has died, or is none of ours.
                    let _ = welcome(stream, &members);
                }
            })
            .map_err(refused)?;
        Ok(Gathering { path, members })
    }

    /// Where workers find it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until workers of so many containers are there.
    ///
    /// # Errors
    /// [`ErrorCode::LimitReached`] if they don't come in time.
    pub(crate) fn wait_for(&self, containers: usize, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while lock(&self.members).here.len() < containers {
            if Instant::now() >= deadline {
                let what = format!("{containers} containers did not come up");
                return Err(Error::new(ErrorCode::LimitReached, what).hint(
                    "name a folder for temporary files that stays (TMPDIR), and look at the logs in it",
                ));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Has all do this, and whoever comes later too, if it is to begin.
    pub(crate) fn order(&self, order: Order) {
        let mut members = lock(&self.members);
        if matches!(order, Order::Begin { .. } | Order::BeginAt { .. }) {
            members.first = vec![order];
        }
        members
            .here
            .retain_mut(|member| send(&mut member.stream, &order).is_ok());
    }

    /// What those who are there tell, sorted by container.
    pub(crate) fn samples(&self, latencies: bool) -> Vec<Sample> {
        let mut members = lock(&self.members);
        let asked = Order::Tell { latencies };
        members
            .here
            .retain_mut(|member| send(&mut member.stream, &asked).is_ok());
        let mut samples = Vec::new();
        members.here.retain_mut(|member| {
            let told = hear(&mut member.lines);
            let is_here = told.is_ok();
            samples.extend(told);
            is_here
        });
        samples.sort_by_key(|sample| (sample.container, sample.incarnation));
        samples
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        // The thread that listens looks whether anybody still wants it when somebody comes.
        self.members = Arc::default();
        let _ = UnixStream::connect(&self.path);
    }
}

fn lock(members: &Mutex<Members>) -> MutexGuard<'_, Members> {
    members.lock().unwrap_or_else(PoisonError::into_inner)
}

fn welcome(stream: UnixStream, members: &Mutex<Members>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
    stream.set_write_timeout(Some(ANSWERS_WITHIN))?;
    let mut lines = BufReader::new(stream.try_clone()?);
    let hello = hear(&mut lines)?;
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
    // Its earlier life is gone.
    members.here.retain(|other| {
        other.container != member.container || other.incarnation > member.incarnation
    });
    members.here.push(member);
    Ok(())
}

fn hear(lines: &mut BufReader<UnixStream>) -> std::io::Result<Sample> {
    let mut line = String::new();
    lines.read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// The moment, unless it was noted already.
pub(crate) fn note_first(moment: &std::sync::atomic::AtomicU64) {
    use std::sync::atomic::Ordering::Relaxed;
    if moment.load(Relaxed) == 0 {
        // Whoever comes second was later.
        let _ = moment.compare_exchange(0, monotonic_nanos(), Relaxed, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counts(AtomicU64);

    impl Attended for Counts {
        fn obey(&self, order: Order) {
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
        let gathering = Gathering::in_folder(folder.path()).unwrap();
        let come = |container, incarnation| {
            let who = Who {
                container,
                incarnation,
            };
            attend(gathering.path(), who, Arc::new(Counts::default())).unwrap();
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
