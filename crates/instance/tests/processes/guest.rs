//! The process of the tests: this test program, with one test selected and a behaviour in the
//! environment.

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::os::fd::AsFd;
use std::process::{abort, exit};

use ardea_core::{PartitionId, Timestamp};
use ardea_instance::protocol::{
    GuestHello, GuestOptions, InstanceConfiguration, ProtocolRange, RowRecords, StatePartEntry,
};
use ardea_instance::{GuestError, GuestInstance, GuestResults, GuestState, InstanceCommand, serve};

const BEHAVIOUR: &str = "ARDEA_TEST_GUEST";
/// The record on which a process misbehaves.
pub const BAD: i64 = 13;

/// Returns a command that behaves as `behaviour` says.
pub fn command(behaviour: &str) -> InstanceCommand {
    InstanceCommand::new(std::env::current_exe().unwrap())
        .args([
            "guest::the_process_of_an_instance",
            "--exact",
            "--nocapture",
        ])
        .env(BEHAVIOUR, behaviour)
}

#[test]
fn the_process_of_an_instance() {
    let Ok(behaviour) = std::env::var(BEHAVIOUR) else {
        return;
    };
    let mut instance = Guest {
        behaviour,
        counts: BTreeMap::new(),
        work: 0,
        pids: None,
    };
    if instance.behaviour == "no hello" {
        eprintln!("the module \"numbers\" is missing");
        exit(7);
    }
    exit(i32::from(serve(&mut instance).is_err()));
}

struct Guest {
    behaviour: String,
    /// Counts by key, in the behaviour `count`.
    counts: BTreeMap<(Option<PartitionId>, Vec<u8>), u64>,
    /// Turns of work per record.
    work: u64,
    /// The file for process ids.
    pids: Option<String>,
}

impl Guest {
    fn misbehave(&self) -> Result<(), GuestError> {
        match self.behaviour.as_str() {
            "abort" => abort(),
            "exit" => exit(0),
            "hang" => loop {
                std::thread::park();
            },
            "allocate" => {
                let mut all = Vec::new();
                loop {
                    all.push(vec![1u8; 16 << 20]);
                }
            }
            "print" => {
                let line = "x".repeat(999) + "\n";
                let mut out = stdout().lock();
                for _ in 0..100_000 {
                    out.write_all(line.as_bytes()).unwrap();
                }
                Ok(())
            }
            "garbage" => {
                let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
                let mut socket = std::os::unix::net::UnixStream::from(socket);
                socket.write_all(&[0xee; 4_096]).unwrap();
                Ok(())
            }
            "raise" => Err(GuestError::failed("ValueError: 13 is unlucky")),
            _ => Ok(()),
        }
    }
}

impl GuestInstance for Guest {
    fn hello(&self) -> GuestHello {
        let protocol = match self.behaviour.as_str() {
            "version" => ProtocolRange { min: 7, max: 9 },
            _ => ProtocolRange::OWN,
        };
        GuestHello {
            protocol,
            language: "rust".into(),
            formats: vec!["json".into()],
            state: self.behaviour == "count",
            watermarks: self.behaviour == "watermarks",
            rings: self.behaviour != "no rings",
            roles: vec!["step".into()],
            options: GuestOptions::default(),
        }
    }

    fn configure(&mut self, configuration: &InstanceConfiguration) -> Result<(), GuestError> {
        let parameters = &configuration.parameters;
        self.work = parameters["work"].as_u64().unwrap_or(0);
        self.pids = parameters["pids"].as_str().map(str::to_owned);
        if let Some(file) = &self.pids {
            let mut file = std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(file)?;
            writeln!(file, "{}", std::process::id())?;
        }
        Ok(())
    }

    fn process(&mut self, batch: &[u8], results: &mut GuestResults<'_>) -> Result<(), GuestError> {
        let mut records = RowRecords::read(batch)?;
        let mut row = 0;
        while let Some(record) = records.next_record()? {
            for turn in 0..self.work {
                std::hint::black_box(turn);
            }
            let number: i64 = serde_json::from_slice(record.value)
                .map_err(|error| GuestError::failed(error.to_string()))?;
            if self.behaviour == "count" {
                let key = (record.partition, record.key.to_vec());
                let count = self.counts.entry(key).or_default();
                *count += 1;
                let output = serde_json::json!([number % super::guarantees::KEYS, count]);
                results.emit(row, record.time, output.to_string().as_bytes())?;
                row += 1;
                continue;
            }
            if number == BAD {
                self.misbehave()?;
            }
            match (self.behaviour.as_str(), number) {
                ("fail row", BAD) => results.fail(row, "13 is unlucky")?,
                ("wrong type", BAD) => results.emit(row, record.time, b"\"thirteen\"")?,
                ("repeat", times) => {
                    for _ in 0..times {
                        results.emit(row, record.time, number.to_string().as_bytes())?;
                    }
                }
                _ => results.emit(row, record.time, (2 * number).to_string().as_bytes())?,
            }
            row += 1;
        }
        Ok(())
    }

    fn on_watermark(
        &mut self,
        time: Timestamp,
        results: &mut GuestResults<'_>,
    ) -> Result<(), GuestError> {
        if time == Timestamp::MAX {
            results.emit(0, time, b"-1")?;
        }
        Ok(())
    }

    fn save(&mut self, state: &mut GuestState<'_>) -> Result<(), GuestError> {
        for ((partition, key), count) in &self.counts {
            state.put(StatePartEntry {
                partition: *partition,
                key,
                value: &count.to_le_bytes(),
            })?;
        }
        Ok(())
    }

    fn restore(&mut self, entry: StatePartEntry<'_>) -> Result<(), GuestError> {
        let count = u64::from_le_bytes(entry.value.try_into().unwrap());
        let key = (entry.partition, entry.key.to_vec());
        self.counts.insert(key, count);
        Ok(())
    }
}
