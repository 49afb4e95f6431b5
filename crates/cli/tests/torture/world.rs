//! All that there is: the cluster, the systems beside it, the inputs, the disk; and what is asked of all of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ardea_metastore::conformance::Skipped;
use ardea_rest::Phase;

use crate::cluster::{Cluster, Program};
use crate::disk::Disk;
use crate::feeder::Feeder;
use crate::inputs::{Event, Input, regions};
use crate::job::{JOB, RATES, TABLES};
use crate::land::Land;
use crate::oracle::Outputs;
use crate::plan::Able;
use crate::poll::until;
use crate::services::{Services, produce};
use crate::verdict::{Differences, compare};

/// How long the job may take to recover, in seconds.
const RECOVERS_WITHIN: u64 = 180;

/// How long it may take until all that it has to publish is published, when nothing goes wrong any more.
const ENDS_WITHIN: u64 = 300;

/// All that there is, in the order in which it ends.
pub struct World {
    pub cluster: Cluster,
    pub feeder: Feeder,
    pub services: Services,
    pub disk: Disk,
    pub program: Program,
    folder: PathBuf,
    seed: u64,
}

impl World {
    /// With the job running and its inputs being written.
    pub fn begin(seed: u64, land: Land, folder: &Path, has_bucket: bool) -> Result<Self, Skipped> {
        let own = land.own_address().parse().expect("an address");
        let services = Services::start(own, has_bucket)?;
        let disk = Disk::at(folder.join("kept"));
        fs::create_dir(folder.join("out")).expect("a folder");
        fs::write(folder.join("regions.csv"), regions()).expect("a file");
        services.sql(TABLES).expect("tables");
        // So that the topic is there.
        produce(&services.brokers(), RATES, "begin\n").expect("a topic");
        let feeder = Feeder::start(seed, folder, services.brokers());
        let cluster = Cluster::start(land, folder)?;
        let (brokers, database) = (services.brokers(), services.database());
        let place = folder.display().to_string();
        let program = Program {
            arguments: vec![JOB.to_string(), place, brokers, database],
            kept: services
                .bucket()
                .unwrap_or_else(|| disk.path().display().to_string()),
        };
        cluster.submit(&program);
        let mut world = World {
            cluster,
            feeder,
            services,
            disk,
            program,
            folder: folder.to_path_buf(),
            seed,
        };
        world.recovers();
        Ok(world)
    }

    /// What can be done here.
    pub fn able(&self) -> Able {
        Able {
            cuts: matches!(self.cluster.land, Land::Spaces(_)),
            fills: self.disk.is_small() && self.services.store.is_none(),
            damages: self.services.store.is_none(),
        }
    }

    /// How far the job has committed; nothing while nobody says.
    pub fn committed(&self) -> Option<u64> {
        self.cluster.describe()?.epochs?.committed
    }

    /// Waits until the job runs by itself, and has committed something since.
    ///
    /// # Panics
    /// If that takes too long, somebody has to decide something, or the inputs can't be written.
    pub fn recovers(&mut self) {
        let mut before = None;
        until("the job runs, and commits", RECOVERS_WITHIN, || {
            if let Some(why) = self.feeder.failure() {
                panic!("the inputs can't be written: {why}");
            }
            self.cluster.start_missing();
            let described = self.cluster.describe()?;
            let (phase, reason) = (described.summary.phase, described.summary.reason);
            assert!(phase != Phase::SafeMode, "in safe mode: {reason:?}");
            let epochs = described.epochs?;
            let before = *before.get_or_insert(epochs.committed);
            let is_so = phase == Phase::Running && epochs.has_begun && epochs.committed > before;
            is_so.then_some(())
        });
    }

    /// What has been published so far; an error while somebody can't be read.
    pub fn outputs(&self) -> Result<Outputs, String> {
        let mut outputs = Outputs {
            pairs: self.lines("pairs"),
            near: self.lines("near"),
            rates: self.services.rates()?,
            silences: self.services.sql("select line from silences")?,
            balances: self.services.sql("select line from balances")?,
        };
        outputs.sort();
        Ok(outputs)
    }

    /// What has its name of the files that begin so.
    fn lines(&self, name: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for file in fs::read_dir(self.folder.join("out"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let called = file.file_name().to_string_lossy().into_owned();
            if called.starts_with(name) && called.ends_with(".txt") {
                let text = fs::read_to_string(file.path()).unwrap_or_default();
                lines.extend(text.lines().map(str::to_string));
            }
        }
        lines
    }

    /// Nothing has been published twice so far, as far as that can be read. That all of it is right shows at the end.
    ///
    /// # Panics
    /// If something has.
    pub fn is_right_so_far(&self) {
        let Ok(seen) = self.outputs() else { return };
        for (name, lines) in seen.all() {
            let doubled = lines.windows(2).find(|two| two[0] == two[1]);
            if let Some(two) = doubled {
                panic!("{name}: {:?} has come more than once", two[0]);
            }
        }
    }

    /// The inputs end; waits until all is published, sees that it stays so, and ends the job.
    ///
    /// # Panics
    /// If what is published is not what the oracle says.
    pub fn end(&mut self) {
        let count = self.feeder.end();
        let orders = Event::all(self.seed, Input::Orders, count);
        let payments = Event::all(self.seed, Input::Payments, count);
        let expected = Outputs::expected(&orders, &payments);
        eprintln!("torture: {count} orders and payments; the oracle has spoken");
        let mut last = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(ENDS_WITHIN);
        loop {
            if let Ok(seen) = self.outputs() {
                last = compare(&expected, &seen);
                if last.is_empty() {
                    break;
                }
                if is_hopeless(&last) || Instant::now() > deadline {
                    self.tell(&expected, &seen, &last);
                }
            }
            assert!(Instant::now() < deadline, "{last:?}");
            thread::park_timeout(Duration::from_millis(300));
        }
        // Nothing comes after the end.
        self.recovers();
        self.is_the_same(&expected);
        let _ = self
            .cluster
            .ask(|client| async move { client.kill(JOB).await });
        until("the job leaves no process", 90, || {
            self.cluster.workers().is_empty().then_some(())
        });
        self.is_the_same(&expected);
    }

    fn is_the_same(&self, expected: &Outputs) {
        let seen = self.outputs().expect("all is there");
        let differences = compare(expected, &seen);
        if !differences.is_empty() {
            self.tell(expected, &seen, &differences);
        }
    }

    /// Writes down what should be and what is, and fails.
    fn tell(&self, expected: &Outputs, seen: &Outputs, found: &[(&'static str, Differences)]) -> ! {
        for (kind, outputs) in [("expected", expected), ("seen", seen)] {
            for (name, lines) in outputs.all() {
                let file = self.folder.join(format!("{kind}-{name}.txt"));
                let _ = fs::write(file, lines.join("\n"));
            }
        }
        let mut report = String::new();
        for (name, differences) in found {
            report += &format!("{name}:\n{differences}");
        }
        let _ = fs::write(self.folder.join("verdict.txt"), &report);
        panic!("what is published is not what should be\n{report}");
    }

    /// Keeps what is lost otherwise, and tells what can be told.
    pub fn has_failed(&self) {
        self.cluster.tell_all();
        let services = [
            ("kafka", &self.services.kafka),
            ("postgres", &self.services.postgres),
        ];
        let store = self.services.store.iter().map(|store| ("minio", store));
        for (name, server) in services.into_iter().chain(store) {
            let log = self.folder.join(format!("{name}.log"));
            let _ = fs::copy(server.folder().join("log"), log);
        }
        self.disk.copy_to(&self.folder.join("kept-then"));
    }
}

/// Whether waiting won't help: something is there that should not be, and can't be taken back. What balances say is overwritten.
fn is_hopeless(found: &[(&'static str, Differences)]) -> bool {
    let mut lasting = found.iter().filter(|(name, _)| *name != "balances");
    lasting.any(|(_, differences)| !differences.can_be_mended())
}
