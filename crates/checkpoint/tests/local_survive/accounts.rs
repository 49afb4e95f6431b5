//! A pipeline in three versions: what it remembers of each account changes from one to the next.

use std::collections::BTreeMap;
use std::time::Duration;

use ardea_aggregate::count;
use ardea_connectors::generate;
use ardea_pipeline::{Pipeline, WatermarkPolicy, Window};
use serde::{Deserialize, Serialize};

/// How many records there are in all, and how many accounts.
pub const RECORDS: u64 = 2_000;
pub const ACCOUNTS: u64 = 8;
/// So many records come in a second; more that were due while nobody ran come at once.
const RATE: u64 = 400;

/// What an account is in the first version.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct First {
    seen: u32,
    owner: String,
    spare: Vec<u8>,
}

/// In the second: a field wider and with another name, one gone, two more.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    note: Option<String>,
    #[serde(alias = "seen")]
    count: u64,
    owner: Option<String>,
    #[serde(default)]
    limit: i32,
}

/// A version that can't read the first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Broken {
    seen: u8,
    owner: String,
    needed: u64,
}

/// What has come out: by account, the counts in their order.
pub type Counts = BTreeMap<u64, Vec<u64>>;

/// A job, and what came out of it.
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
