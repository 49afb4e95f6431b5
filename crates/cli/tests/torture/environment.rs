//! The complete test environment: the cluster, the external systems, the inputs, the disk, and
//! requests to all of them.

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
use crate::network::HostNetwork;
use crate::oracle::Outputs;
use crate::plan::Capabilities;
use crate::poll::until;
use crate::services::{Services, produce};
use crate::verdict::{Differences, compare};

/// The time limit for the job's recovery, in seconds.
const RECOVERS_WITHIN: u64 = 180;

/// The time limit until all results are published, after the last fault, in seconds.
const ENDS_WITHIN: u64 = 300;

/// The complete test environment; fields are in drop order.
pub struct TestEnvironment {
    pub cluster: Cluster,
    pub feeder: Feeder,
    pub services: Services,
    pub disk: Disk,
    pub program: Program,
    folder: PathBuf,
    seed: u64,
}

impl TestEnvironment {
    /// Creates the environment, with the job running and its inputs being written.
    pub fn begin(
        seed: u64,
        land: HostNetwork,
        folder: &Path,
        (has_bucket, has_batches): (bool, bool),
    ) -> Result<Self, Skipped> {
        let own = land.own_address().parse().expect("an address");
        let services = Services::start(own, has_bucket)?;
        let disk = Disk::at(folder.join("kept"));
        fs::create_dir(folder.join("out")).expect("a folder");
        fs::write(folder.join("regions.csv"), regions()).expect("a file");
        services.sql(TABLES).expect("tables");
        // Creates the topic.
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
            mode: match has_batches {
                true => "micro-batch",
                false => "continuous",
            },
        };
        cluster.submit(&program);
        let mut world = TestEnvironment {
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

    /// Returns the kinds of faults that are possible here.
    pub fn able(&self) -> Capabilities {
        Capabilities {
            cuts: matches!(self.cluster.land, HostNetwork::Spaces(_)),
            fills: self.disk.is_small() && self.services.store.is_none(),
            damages: self.services.store.is_none(),
        }
    }

    /// Returns the job's last committed epoch; `None` while no host answers.
    pub fn committed(&self) -> Option<u64> {
        self.cluster.describe()?.epochs?.committed
    }

    /// Waits until the job runs without help, and has committed an epoch since.
    ///
    /// # Panics
    /// If that takes too long, the job waits for a decision of the user, or the inputs can't be
    /// written.
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

    /// Returns the results published so far; an error while a system can't be read.
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

    /// Returns the lines of the output files whose names start with `name`.
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

    /// Checks that no readable result has been published twice so far. Completeness is checked at
    /// the end.
    ///
    /// # Panics
    /// If a result is duplicated.
    pub fn is_right_so_far(&self) {
        let Ok(seen) = self.outputs() else { return };
        for (name, lines) in seen.all() {
            let doubled = lines.windows(2).find(|two| two[0] == two[1]);
            if let Some(two) = doubled {
                panic!("{name}: {:?} has come more than once", two[0]);
            }
        }
    }

    /// Ends the inputs, waits until all results are published, checks that they stay so, and stops
    /// the job.
    ///
    /// # Panics
    /// If the published results differ from those of the oracle.
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
        // Nothing is published after the end.
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

    /// Writes the expected and the actual results to files, and fails.
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

    /// Saves logs and other files that would be lost, and prints details.
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

/// Returns true if waiting won't help: there are unexpected results that can't be taken back.
/// Balances are overwritten, and so are ignored.
fn is_hopeless(found: &[(&'static str, Differences)]) -> bool {
    let mut lasting = found.iter().filter(|(name, _)| *name != "balances");
    lasting.any(|(_, differences)| !differences.can_be_mended())
}
