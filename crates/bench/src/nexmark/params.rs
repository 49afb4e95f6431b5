//! What `ardea bench nexmark` can be asked for.

use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_engine::NodeConfig;

/// A query of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BenchQuery {
    /// All bids, unchanged.
    Q0,
    /// Each bid's price in another currency.
    Q1,
    /// The bids on certain auctions.
    Q2,
    /// The auctions with the most bids in each sliding window.
    Q5,
    /// The highest bids of each tumbling window.
    Q7,
    /// The persons that opened an auction in the same window.
    Q8,
    /// Bids joined with a table.
    Q13,
}

impl BenchQuery {
    /// Every query that can be measured.
    pub const ALL: [BenchQuery; 7] = [
        BenchQuery::Q0,
        BenchQuery::Q1,
        BenchQuery::Q2,
        BenchQuery::Q5,
        BenchQuery::Q7,
        BenchQuery::Q8,
        BenchQuery::Q13,
    ];

    /// Its usual name.
    pub const fn name(self) -> &'static str {
        match self {
            BenchQuery::Q0 => "q0",
            BenchQuery::Q1 => "q1",
            BenchQuery::Q2 => "q2",
            BenchQuery::Q5 => "q5",
            BenchQuery::Q7 => "q7",
            BenchQuery::Q8 => "q8",
            BenchQuery::Q13 => "q13",
        }
    }

    /// Whether its results are those of windows, so that their latency starts at the window's end.
    pub const fn is_windowed(self) -> bool {
        matches!(self, BenchQuery::Q5 | BenchQuery::Q7 | BenchQuery::Q8)
    }
}

impl std::str::FromStr for BenchQuery {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        BenchQuery::ALL
            .into_iter()
            .find(|query| query.name() == name)
            .ok_or_else(|| {
                let known: Vec<&str> = BenchQuery::ALL.iter().map(|query| query.name()).collect();
                Error::new(
                    ErrorCode::InvalidConfig,
                    format!("there is no benchmark of query {name:?}"),
                )
                .hint(format!("one of {}", known.join(", ")))
            })
    }
}

/// What `ardea bench nexmark` can be asked for; the names are those of its flags.
#[derive(Clone, Debug)]
pub struct NexmarkParams {
    /// Which query.
    pub query: BenchQuery,
    /// Events a second, over all jobs; with `max` the pace of event time only.
    pub rate: u64,
    /// As fast as possible instead of at `rate`.
    pub max: bool,
    /// How long is measured.
    pub duration: Duration,
    /// How long runs before that.
    pub warmup: Duration,
    /// The length of windows.
    pub window: Duration,
    /// Their slide.
    pub slide: Duration,
    /// How many auctions there are.
    pub keys: u64,
    /// Cooperative threads.
    pub threads: u32,
    /// How many jobs run at once, each with its share of the rate.
    pub jobs: u32,
    /// How long a thread with nothing to do looks for work before it sleeps: more is steadier and burns more.
    pub spin: Duration,
    /// Whether stages share tasklets and the generator takes the query's first step into its loop; off to measure what that
    /// gains.
    pub fuse: bool,
    /// Whether the plain loop is measured as well.
    pub baseline: bool,
}

impl Default for NexmarkParams {
    fn default() -> Self {
        NexmarkParams {
            query: BenchQuery::Q5,
            rate: 1_000_000,
            max: false,
            duration: Duration::from_secs(20),
            warmup: Duration::from_secs(5),
            window: Duration::from_secs(10),
            slide: Duration::from_millis(10),
            keys: 10_000,
            threads: 1,
            jobs: 1,
            spin: NodeConfig::default().spin,
            fuse: true,
            baseline: true,
        }
    }
}

impl NexmarkParams {
    /// Checks what can be checked without running.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] naming the value at fault.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::new(ErrorCode::InvalidConfig, what));
        if self.rate == 0 || self.rate > 1_000_000_000 {
            return wrong(format!(
                "a rate of {} events a second can't be scheduled (1 to 1,000,000,000)",
                self.rate
            ));
        }
        if self.keys == 0 || self.keys > ardea_nexmark::KEYS_MAX {
            return wrong(format!(
                "{} keys are not between 1 and {}",
                self.keys,
                ardea_nexmark::KEYS_MAX
            ));
        }
        if self.jobs == 0 || u64::from(self.jobs) > self.rate {
            return wrong(format!(
                "{} jobs can't share {} events a second",
                self.jobs, self.rate
            ));
        }
        if self.threads == 0 {
            return wrong("zero threads run nothing; give at least 1".into());
        }
        if self.duration.is_zero() {
            return wrong("a duration of zero measures nothing".into());
        }
        Ok(())
    }
}
