//! The data of the demo: embedded in the program, or in a directory.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;

use ardea::connect::format::{Csv, Decode};
use ardea::core::{Bounded, ErrorCode, Instance, Isolation, Processor, ProcessorSupplier, Source};
use ardea::prelude::{Timestamp, files};
use ardea::{Error, Result};
use serde::de::DeserializeOwned;

use super::recorded::RecordedP;

const EMBEDDED: [(&str, &[u8]); 5] = [
    ("flights.csv.zst", include_bytes!("../data/flights.csv.zst")),
    ("weather.csv.gz", include_bytes!("../data/weather.csv.gz")),
    ("planes.csv.gz", include_bytes!("../data/planes.csv.gz")),
    ("airports.csv.gz", include_bytes!("../data/airports.csv.gz")),
    ("airlines.csv.gz", include_bytes!("../data/airlines.csv.gz")),
];

/// The records of a file in order.
pub type Rows<T> = Box<dyn Iterator<Item = Result<T>> + Send>;

/// The files of the flight data. Embedded files are read from memory without a copy on disk.
#[derive(Clone, Debug)]
pub struct Data {
    /// The directory; `None` for the embedded files.
    directory: Option<PathBuf>,
}

impl Data {
    /// Uses the files in a directory, with the names of `examples/demo/data`.
    pub fn in_directory(directory: impl Into<PathBuf>) -> Self {
        Data {
            directory: Some(directory.into()),
        }
    }

    /// Uses the embedded files, 5.3 MB.
    pub fn embedded() -> Self {
        Data { directory: None }
    }

    /// Creates a source of the records of a file, as fast as the job reads them.
    pub fn csv<T: DeserializeOwned + Send + 'static>(
        &self,
        name: &'static str,
    ) -> Source<T, Bounded> {
        if let Some(directory) = &self.directory {
            return files::csv(directory.join(name)).build();
        }
        let data = self.clone();
        self.source(name, move || RecordedP::new(data.clone(), name))
    }

    /// Reads the records of a file without a job.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`] if the file cannot be opened. An item is an error if it cannot be
    /// read or parsed.
    pub fn rows<T: DeserializeOwned + 'static>(&self, name: &'static str) -> Result<Rows<T>> {
        let (data, mut csv) = (self.clone(), Csv::new());
        let rows = self.open(name)?.lines().map(move |line| {
            let line = line.map_err(|error| data.cannot_read(name, error))?;
            csv.decode(line.as_bytes()).map_err(|reason| {
                let what = format!("{}: {line:?} is no such row", data.origin(name));
                Error::new(ErrorCode::BadRecord, what).because(reason)
            })
        });
        Ok(Box::new(rows.filter_map(Result::transpose)))
    }

    /// Creates a source that replays the records of a file in the order of `time`, with `speed`
    /// seconds of recorded time per second.
    ///
    /// A drained job gets no more records: the replay ends at its current position.
    pub fn replayed<T: DeserializeOwned + Send + 'static>(
        &self,
        name: &'static str,
        time: fn(&T) -> Timestamp,
        speed: f64,
    ) -> Source<T, Bounded> {
        let data = self.clone();
        self.source(name, move || {
            RecordedP::replayed(data.clone(), name, time, speed)
        })
    }

    fn source<T: DeserializeOwned + Send + 'static>(
        &self,
        name: &str,
        make: impl Fn() -> RecordedP<T> + Send + Sync + 'static,
    ) -> Source<T, Bounded> {
        let supply = move |_: Instance| -> Result<Box<dyn Processor>> { Ok(Box::new(make())) };
        let supplier: Arc<dyn ProcessorSupplier> = Arc::new(supply);
        Source::new(format!("read {}", self.origin(name)), supplier).isolation(Isolation::Thread)
    }

    /// Returns the name of a file for messages.
    pub(super) fn origin(&self, name: &str) -> String {
        match &self.directory {
            Some(directory) => directory.join(name).display().to_string(),
            None => name.to_string(),
        }
    }

    /// Opens a file for reading, uncompressed.
    pub(super) fn open(&self, name: &str) -> Result<Box<dyn BufRead + Send>> {
        let bytes: Box<dyn Read + Send> = match &self.directory {
            Some(directory) => {
                let file = File::open(directory.join(name));
                Box::new(file.map_err(|error| self.cannot_read(name, error))?)
            }
            None => {
                let own = EMBEDDED.iter().find(|(known, _)| *known == name);
                Box::new(own.map_or(&[][..], |(_, bytes)| bytes))
            }
        };
        Ok(if name.ends_with(".zst") {
            let plain = zstd::Decoder::new(bytes);
            Box::new(BufReader::new(
                plain.map_err(|error| self.cannot_read(name, error))?,
            ))
        } else {
            Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(bytes)))
        })
    }

    pub(super) fn cannot_read(&self, name: &str, error: std::io::Error) -> Error {
        Error::new(
            ErrorCode::ReadFailed,
            format!("cannot read {}", self.origin(name)),
        )
        .because(error)
        .hint("check that it exists and may be read; without --data the program reads its own")
    }
}
