//! A pipeline in three versions, with a different type of account state in each.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_aggregate::count;
use ardea_connectors::generate;
use ardea_pipeline::{Pipeline, WatermarkPolicy, Window};
use serde::{Deserialize, Serialize};

/// The total number of records.
pub const RECORDS: u64 = 2_000;
pub const ACCOUNTS: u64 = 8;
/// The records per second. Overdue records are emitted at once.
const RATE: u64 = 400;

/// The account state in the first version of the pipeline.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct First {
    seen: u32,
    owner: String,
    spare: Vec<u8>,
}

/// The account state in the second version: one field is wider and renamed, one is removed, and two
/// are added.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    note: Option<String>,
    #[serde(alias = "seen")]
    count: u64,
    owner: Option<String>,
    #[serde(default)]
    limit: i32,
}

/// The account state in a version that cannot read the first one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Broken {
    seen: u8,
    owner: String,
    needed: u64,
}

/// The output of the pipeline: by account, the emitted counts in order.
pub type Counts = BTreeMap<u64, Vec<u64>>;

/// A job with its output.
pub struct Job {
    pub pipeline: Pipeline,
    counts: Box<dyn Fn() -> Vec<(u64, u64)> + Send + Sync>,
}

impl Job {
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for (account, count) in (self.counts)() {
            counts.entry(account).or_default().push(count);
        }
        counts
            .values_mut()
            .for_each(|counts| counts.sort_unstable());
        counts
    }
}

macro_rules! version {
    ($name:ident, $state:ty, $count:ident) => {
        pub fn $name() -> Job {
            let p = Pipeline::new("accounts");
            let source = generate::at_rate(RATE, |n| n).limit(RECORDS).build();
            let (records, timed) = p
                .read_from(source)
                .with_native_timestamps(WatermarkPolicy::in_order())
                .tee();
            let counts = records
                .key_by(|n| *n % ACCOUNTS)
                .map_stateful("accounts", <$state>::default, |state, account, _| {
                    state.$count += 1;
                    (*account, u64::from(state.$count))
                })
                .collect();
            timed
                .key_by(|n| *n % 3)
                .window(Window::tumbling(Duration::from_millis(50)))
                .aggregate("windows", count())
                .write_to(ardea_connectors::null::sink());
            Job {
                pipeline: p,
                counts: Box::new(move || counts.take()),
            }
        }
    };
}

version!(first, First, seen);
version!(second, Second, count);
version!(broken, Broken, seen);
