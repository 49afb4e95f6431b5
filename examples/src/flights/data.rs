//! Where the demo's data comes from: the program itself, or a directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ardea::connect::format::{Csv, Decode, Framing};
use ardea::core::{Bounded, ErrorCode, Source};
use ardea::prelude::files;
use ardea::{Error, Result};
use serde::de::DeserializeOwned;
use tempfile::TempDir;

/// The files that the program carries.
const EMBEDDED: [(&str, &[u8]); 4] = [
    (
        "flights.csv.zst",
        include_bytes!("../../data/flights.csv.zst"),
    ),
    (
        "weather.csv.gz",
        include_bytes!("../../data/weather.csv.gz"),
    ),
    ("planes.csv.gz", include_bytes!("../../data/planes.csv.gz")),
    (
        "airlines.csv.gz",
        include_bytes!("../../data/airlines.csv.gz"),
    ),
];

/// The files of the flight data.
#[derive(Clone, Debug)]
pub struct Data {
    directory: PathBuf,
    /// The directory is removed when the last of those who read it is gone.
    own: Option<Arc<TempDir>>,
}

impl Data {
    /// The data in a directory, under the names that it has in `examples/data`.
    pub fn in_directory(directory: impl Into<PathBuf>) -> Self {
        Data {
            directory: directory.into(),
            own: None,
        }
    }

    /// The data in the program, 5.3 MB, put into a temporary directory that goes when the jobs that read it are gone.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if there is no room for it.
    pub fn embedded() -> Result<Self> {
        let cannot_write = |path: &Path, error: std::io::Error| {
            Error::new(
                ErrorCode::WriteFailed,
                format!("cannot put the demo's data into {}", path.display()),
            )
            .because(error)
            .hint("free some space, or set TMPDIR to a directory with room for 6 MB")
        };
        let own = tempfile::Builder::new()
            .prefix("ardea-flights-")
            .tempdir()
            .map_err(|error| cannot_write(&std::env::temp_dir(), error))?;
        for (name, bytes) in EMBEDDED {
            let path = own.path().join(name);
            fs::write(&path, bytes).map_err(|error| cannot_write(&path, error))?;
        }
        Ok(Data {
            directory: own.path().to_path_buf(),
            own: Some(Arc::new(own)),
        })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The records of one of the files.
    pub fn csv<T: DeserializeOwned + Send + 'static>(&self, name: &str) -> Source<T, Bounded> {
        let decoder = CsvOfData {
            csv: Csv::new(),
            _own: self.own.clone(),
        };
        files::read(self.directory.join(name), decoder).build()
    }
}

/// CSV whose source keeps the directory that it is read from.
#[derive(Clone, Debug)]
struct CsvOfData {
    csv: Csv,
    _own: Option<Arc<TempDir>>,
}

impl<T: DeserializeOwned> Decode<T> for CsvOfData {
    fn framing(&self) -> Framing {
        Decode::<T>::framing(&self.csv)
    }

    fn begin(&mut self) {
        Decode::<T>::begin(&mut self.csv);
    }

    fn decode(&mut self, frame: &[u8]) -> std::result::Result<Option<T>, String> {
        self.csv.decode(frame)
    }
}

#[cfg(test)]
mod tests {
    use ardea::Pipeline;

    use super::*;
    use crate::flights::Airline;

    #[test]
    fn the_temporary_directory_lives_as_long_as_a_job_that_reads_it() {
        let data = Data::embedded().unwrap();
        let directory = data.directory().to_path_buf();
        let other = Data::embedded().unwrap();
        assert_ne!(directory, other.directory(), "two at once are apart");

        let p = Pipeline::new("airlines");
        let airlines = p
            .read_from(data.csv::<Airline>("airlines.csv.gz"))
            .collect();
        drop(data);
        assert!(directory.exists());
        p.run().unwrap();
        assert_eq!(airlines.len(), 16);
        drop((p, airlines));
        assert!(!directory.exists());
    }
}
