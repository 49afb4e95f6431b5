//! Word count whose bolts run in processes of their own.
//!
//! The process of a bolt is this program, with the flag `--copy`. For each batch it emits the
//! number of counted words to the bolt `totals` in the process of the spouts.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use ardea::instance::protocol::{
    GuestHello, GuestOptions, InstanceConfiguration, NOT_ANCHORED, ProtocolRange, RowRecords,
};
use ardea::instance::{
    GuestError, GuestInstance, GuestResults, InstanceCommand, TransferOptions, serve,
};
use ardea_core::{Error, ErrorCode, Timestamp};
use ardea_topology::{Bolt, Collector, Outcome, Outputs, Topology, Tuple};
use serde::Deserialize;

use super::components::Shared;
use super::params::WordcountParams;
use super::run::spouts;
use super::table::WordCounts;

/// The processes of the bolts that have counted words.
pub(super) type Processes = Arc<Mutex<BTreeSet<u32>>>;

/// Returns the ids of the processes.
pub(super) fn ids(processes: &Processes) -> Vec<u32> {
    let ids = processes.lock().unwrap_or_else(PoisonError::into_inner);
    ids.iter().copied().collect()
}

/// Returns the topology of spouts in this process and bolts in others.
pub(super) fn topology(
    shared: &Arc<Shared>,
    params: &WordcountParams,
    options: TransferOptions,
    processes: &Processes,
) -> ardea_core::Result<Topology> {
    let instances = params.instances();
    let mut builder = spouts(shared, instances, params.max_pending);
    let command = InstanceCommand::new("/proc/self/exe")
        .args(["bench", "wordcount", "--copy"])
        .transfer(options);
    let outputs = Outputs::fields(["counted", "distinct", "instance", "process"]);
    builder
        .bolt_in_process("count", instances, command, outputs)
        .fields("words", ["word"]);
    let (shared, processes) = (Arc::clone(shared), Arc::clone(processes));
    builder
        .bolt("totals", 1, move || TotalsBolt {
            shared: Arc::clone(&shared),
            processes: Arc::clone(&processes),
        })
        .shuffle("count");
    builder.build()
}

/// A bolt that adds up the words of each batch.
struct TotalsBolt {
    shared: Arc<Shared>,
    processes: Processes,
}

impl Bolt for TotalsBolt {
    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
        let field = |at| tuple.int_at(at).map(|value| value.unsigned_abs());
        let (counted, distinct) = (field(0)?, field(1)?);
        let instance = field(2)? as usize;
        self.shared.counted[instance].add(counted as usize);
        self.shared.distinct[instance].set(distinct);
        if !self.shared.acks {
            self.shared.done[instance].add(counted as usize);
        }
        let processes = self.processes.lock();
        let mut processes = processes.unwrap_or_else(PoisonError::into_inner);
        processes.insert(field(3)? as u32);
        Ok(())
    }
}

/// A word of a tuple.
#[derive(Deserialize)]
#[serde(transparent)]
struct Word<'a>(#[serde(borrow)] Cow<'a, str>);

/// The bolt in its process.
#[derive(Default)]
struct CountGuest {
    counts: WordCounts,
    instance: u32,
}

impl GuestInstance for CountGuest {
    fn hello(&self) -> GuestHello {
        GuestHello {
            protocol: ProtocolRange::OWN,
            language: "rust".into(),
            formats: vec!["json".into()],
            state: false,
            watermarks: false,
            rings: true,
            roles: vec!["bolt".into()],
            options: GuestOptions::default(),
        }
    }

    fn configure(&mut self, configuration: &InstanceConfiguration) -> Result<(), GuestError> {
        self.instance = configuration.instance;
        Ok(())
    }

    fn process(&mut self, batch: &[u8], results: &mut GuestResults<'_>) -> Result<(), GuestError> {
        let mut records = RowRecords::read(batch)?;
        let mut words = Vec::with_capacity(records.left() as usize);
        while let Some(record) = records.next_record()? {
            // The index of the input, and the word.
            let tuple: Result<(u32, Word<'_>), _> = serde_json::from_slice(record.value);
            let (_, word) = tuple.map_err(|error| GuestError::failed(error.to_string()))?;
            words.push(word.0);
        }
        self.counts
            .add_all(words.iter().map(|word| word.as_bytes()));
        let (counted, distinct) = (words.len(), self.counts.distinct());
        let (instance, process) = (self.instance, std::process::id());
        let totals = format!("[0,{counted},{distinct},{instance},{process}]");
        results.emit(NOT_ANCHORED, Timestamp::MIN, totals.as_bytes())
    }
}

/// Runs the process of a bolt: the command with `--copy`.
///
/// # Errors
/// [`ErrorCode::UserError`] if a word can't be read, or the connection fails.
pub fn run_bolt() -> ardea_core::Result<()> {
    serve(&mut CountGuest::default()).map_err(|error| {
        let cause = match error {
            GuestError::Failed(failure) => failure.message,
            GuestError::Connection(error) => error.to_string(),
        };
        Error::new(ErrorCode::UserError, "the bolt of the benchmark has failed").because(cause)
    })
}
