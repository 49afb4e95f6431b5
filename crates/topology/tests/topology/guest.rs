//! The process of an instance: this test program, with one test selected and a behaviour in the
//! environment.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{abort, exit};

use ardea_core::{PartitionId, Timestamp};
use ardea_instance::protocol::{
    GuestHello, GuestOptions, InstanceConfiguration, NOT_ANCHORED, PendingRow, ProtocolRange,
    RowRecords, SPOUT_IS_DONE, StatePartEntry, TupleAck,
};
use ardea_instance::{
    GuestEmits, GuestError, GuestInstance, GuestResults, GuestState, InstanceCommand, serve,
};
use serde_json::{Value, json};

/// The environment variable with the behaviour.
pub const BEHAVIOUR: &str = "ARDEA_TEST_COMPONENT";
/// The number on which a bolt misbehaves.
pub const BAD: i64 = 13;

/// Returns a command that behaves as `behaviour` says.
pub fn command(behaviour: &str) -> InstanceCommand {
    InstanceCommand::new(std::env::current_exe().unwrap())
        .args([
            "guest::the_process_of_a_component",
            "--exact",
            "--nocapture",
        ])
        .env(BEHAVIOUR, behaviour)
}

#[test]
fn the_process_of_a_component() {
    let Ok(behaviour) = std::env::var(BEHAVIOUR) else {
        return;
    };
    let mut guest = Guest {
        behaviour,
        ..Guest::default()
    };
    exit(i32::from(serve(&mut guest).is_err()));
}

#[derive(Default)]
struct Guest {
    behaviour: String,
    instance: u32,
    instances: u32,
    /// The number of tuples of the spout.
    end: u64,
    /// The next number of the spout.
    next: u64,
    failed: Vec<u64>,
    /// Counts by partition and key.
    counts: BTreeMap<(Option<PartitionId>, Vec<u8>), (Value, u64)>,
    held: Vec<(PendingRow, i64)>,
    /// A file that exists if the process has died before.
    once: Option<PathBuf>,
    /// The socket at which the test decides about this process.
    gate: Option<PathBuf>,
    /// The number of calls until the process stops at the gate; `None` if it does not.
    calls_to_gate: Option<u32>,
}

impl Guest {
    /// Waits until the test closes its connection to this process, or kills this process.
    fn stop_at_gate(&self) {
        if let Some(mut test) = self
            .gate
            .as_ref()
            .and_then(|it| UnixStream::connect(it).ok())
        {
            // The test has ended if it fails.
            let _ = writeln!(test, "{}", std::process::id());
            let _ = test.read_to_end(&mut Vec::new());
        }
    }

    /// Counts a call towards the stop at the gate.
    fn count_call(&mut self) {
        if let Some(calls) = &mut self.calls_to_gate {
            *calls -= 1;
            if *calls == 0 {
                self.calls_to_gate = None;
                self.stop_at_gate();
            }
        }
    }

    /// Emits the sum of all held numbers, anchored to them, and acks them.
    fn release(&mut self, out: &mut GuestEmits<'_>) -> Result<(), GuestError> {
        if self.held.is_empty() {
            return Ok(());
        }
        let sum: i64 = self.held.iter().map(|(_, number)| number).sum();
        let anchors: Vec<PendingRow> = self.held.iter().map(|(held, _)| *held).collect();
        out.emit(&anchors, json!([0, sum]).to_string().as_bytes())?;
        let acks: Vec<TupleAck> = anchors
            .into_iter()
            .map(|held| TupleAck {
                held,
                failure: None,
            })
            .collect();
        self.held.clear();
        out.settle(&acks)
    }

    fn execute(
        &mut self,
        row: u32,
        place: (Option<PartitionId>, &[u8]),
        values: &[Value],
        results: &mut GuestResults<'_>,
    ) -> Result<(), GuestError> {
        let number = values[0].as_i64().unwrap_or(0);
        let mut emit = |row: u32, tuple: Value| {
            results.emit(row, Timestamp::MIN, tuple.to_string().as_bytes())
        };
        match (self.behaviour.as_str(), number) {
            ("split", _) => {
                for word in values[0].as_str().unwrap_or("").split_whitespace() {
                    emit(row, json!([0, word]))?;
                }
            }
            ("count", _) => {
                let key = (place.0, place.1.to_vec());
                let count = self.counts.entry(key);
                count.or_insert_with(|| (values[0].clone(), 0)).1 += 1;
            }
            ("hold" | "hold until the end" | "acks nothing", _) => {
                self.held.push((results.hold(row), number))
            }
            ("direct", _) => {
                emit(row, json!({"stream": 1, "instance": 1, "values": [number]}))?;
                emit(NOT_ANCHORED, json!([0, number]))?;
            }
            ("abort", BAD) => abort(),
            ("fail row", BAD) => results.fail(row, "13 is unlucky")?,
            ("wrong stream", BAD) => emit(row, json!([7, 1]))?,
            ("wrong width", BAD) => emit(row, json!([0, 1, 2]))?,
            ("garbage", BAD) => results.emit(row, Timestamp::MIN, b"[0,")?,
            ("wrong row", BAD) => emit(1_000_000, json!([0, 1]))?,
            ("never acks", BAD) => {
                results.hold(row);
            }
            _ => emit(row, json!([0, number]))?,
        }
        Ok(())
    }
}

impl GuestInstance for Guest {
    fn hello(&self) -> GuestHello {
        let roles = match self.behaviour.as_str() {
            "numbers" | "too many" | "wrong wait" => "spout",
            _ => "bolt",
        };
        GuestHello {
            protocol: ProtocolRange::OWN,
            language: "rust".into(),
            formats: vec!["json".into()],
            state: matches!(self.behaviour.as_str(), "count" | "numbers"),
            watermarks: false,
            rings: true,
            roles: vec![roles.into()],
            options: GuestOptions::default(),
        }
    }

    fn configure(&mut self, configuration: &InstanceConfiguration) -> Result<(), GuestError> {
        let parameters = &configuration.parameters;
        (self.instance, self.instances) = (configuration.instance, configuration.instances);
        self.next = u64::from(self.instance);
        self.end = parameters["end"].as_u64().unwrap_or(0);
        self.once = parameters["once"].as_str().map(PathBuf::from);
        self.gate = parameters["gate"].as_str().map(PathBuf::from);
        // An instance with state stops after a commit.
        self.calls_to_gate = (!self.hello().state && self.behaviour != "tick").then_some(3);
        Ok(())
    }

    fn process(&mut self, batch: &[u8], results: &mut GuestResults<'_>) -> Result<(), GuestError> {
        self.count_call();
        let mut records = RowRecords::read(batch)?;
        let mut row = 0;
        while let Some(record) = records.next_record()? {
            let tuple: Vec<Value> = serde_json::from_slice(record.value)
                .map_err(|error| GuestError::failed(error.to_string()))?;
            self.execute(row, (record.partition, record.key), &tuple[1..], results)?;
            row += 1;
        }
        Ok(())
    }

    fn next(&mut self, limit: u32, out: &mut GuestEmits<'_>) -> Result<i32, GuestError> {
        self.count_call();
        if self.behaviour == "wrong wait" {
            return Ok(SPOUT_IS_DONE - 1);
        }
        if self.behaviour == "too many" {
            for number in 0..=u64::from(limit) {
                out.emit_tracked(number, b"[0,1]")?;
            }
            return Ok(0);
        }
        for _ in 0..limit {
            let number = match self.failed.pop() {
                Some(number) => number,
                None if self.next >= self.end => return Ok(SPOUT_IS_DONE),
                None => {
                    self.next += u64::from(self.instances);
                    self.next - u64::from(self.instances)
                }
            };
            out.emit_tracked(
                number,
                json!([0, number, number % 10]).to_string().as_bytes(),
            )?;
        }
        Ok(0)
    }

    fn on_outcome(&mut self, message: u64, is_acked: bool) -> Result<(), GuestError> {
        if !is_acked {
            self.failed.push(message);
        }
        Ok(())
    }

    fn on_commit(&mut self, _: u64) -> Result<(), GuestError> {
        self.calls_to_gate = Some(2);
        Ok(())
    }

    fn on_tick(&mut self, out: &mut GuestEmits<'_>) -> Result<(), GuestError> {
        if let Some(once) = self.once.as_ref().filter(|it| !it.exists())
            && !self.held.is_empty()
        {
            std::fs::write(once, "")?;
            abort();
        }
        match self.behaviour.as_str() {
            "hold" => self.release(out),
            "tick" => {
                self.stop_at_gate();
                out.emit(&[], b"[0,1]")
            }
            "acks nothing" => {
                let held = PendingRow { batch: 7, row: 7 };
                out.settle(&[TupleAck {
                    held,
                    failure: None,
                }])
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, out: &mut GuestEmits<'_>) -> Result<(), GuestError> {
        if self.behaviour == "hold until the end" {
            self.release(out)?;
        }
        for (key, count) in self.counts.values() {
            out.emit(&[], json!([0, key, count]).to_string().as_bytes())?;
        }
        Ok(())
    }

    fn save(&mut self, state: &mut GuestState<'_>) -> Result<(), GuestError> {
        if self.behaviour == "numbers" {
            return state.put(StatePartEntry {
                // The first partition that the instance owns.
                partition: (0..)
                    .map_while(PartitionId::from_index)
                    .find(|partition| partition.owner(self.instances) == self.instance),
                key: b"next",
                value: &self.next.to_le_bytes(),
            });
        }
        for ((partition, key), counted) in &self.counts {
            state.put(StatePartEntry {
                partition: *partition,
                key,
                value: json!(counted).to_string().as_bytes(),
            })?;
        }
        Ok(())
    }

    fn restore(&mut self, entry: StatePartEntry<'_>) -> Result<(), GuestError> {
        if self.behaviour == "numbers" {
            self.next = u64::from_le_bytes(entry.value.try_into().unwrap());
            return Ok(());
        }
        let counted = serde_json::from_slice(entry.value).unwrap();
        let key = (entry.partition, entry.key.to_vec());
        self.counts.insert(key, counted);
        Ok(())
    }
}
