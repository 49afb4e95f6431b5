//! The sink that appends each batch to a file as a line of JSON. The file is rotated by size.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ardea_core::{Error, ErrorCode, Result};
use ardea_filesystem::Permissions;
use serde::Serialize;

use crate::{Batch, Labels, MetricsSink, SinkSetup, Value};

/// A sink that appends each batch as a line of JSON to a file.
///
/// A file that would exceed its size limit is renamed to `FILE.1`, the previous `FILE.1` to
/// `FILE.2`, and so on. The oldest file is removed. A new file gets the mode and group of the
/// previous one. By default, the limit is 64 MiB and four rotated files are retained.
///
/// In a list of sinks, this sink is written as `json-lines:FILE`. In `FILE`, `{container}` and
/// other label names in braces are replaced by the process's labels, so that each process of a job
/// can write a separate file. Two processes must not write the same file, because each would rotate
/// it.
///
/// ```json
/// {"at":"2026-01-02T03:04:05Z","process":{"job":"a"},"samples":[{"name":"carts_open","labels":{"shop":"b"},"kind":"gauge","value":7.0}]}
/// ```
///
/// A histogram has `buckets`: pairs of an upper bound (`null` for infinity) and the cumulative
/// count. A summary has `quantiles`: pairs of a rank and a value. Both have `sum` and `count`.
/// Non-finite numbers are `null`.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    most_bytes: u64,
    keep: usize,
    file: Option<(File, u64)>,
}

impl JsonLines {
    /// Creates a sink for this file. The file and its folder are created at the first batch.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        JsonLines {
            path: path.into(),
            most_bytes: 64 << 20,
            keep: 4,
            file: None,
        }
    }

    /// Sets the size limit of the file in bytes. A line longer than the limit gets a file of its
    /// own.
    pub fn most_bytes(mut self, bytes: u64) -> Self {
        self.most_bytes = bytes;
        self
    }

    /// Sets the number of rotated files that are retained.
    pub fn keep(mut self, files: usize) -> Self {
        self.keep = files;
        self
    }

    pub(crate) fn from_setup(setup: &SinkSetup) -> Result<Self> {
        Ok(JsonLines::new(JsonLines::path_of(setup)?))
    }

    /// Returns the path in the sink's argument, with labels replaced. Opens no file.
    pub(crate) fn path_of(setup: &SinkSetup) -> Result<PathBuf> {
        let argument = setup.required("json-lines:FILE")?;
        let (mut path, mut rest) = (String::new(), argument);
        while let Some((before, behind)) = rest.split_once('{')
            && let Some((name, after)) = behind.split_once('}')
        {
            let value = setup.process.get(name);
            let value = value.ok_or_else(|| no_label(name, &setup.process))?;
            // A label's value must not lead into another folder.
            path += before;
            path += &value.replace(['/', '\0'], "_");
            rest = after;
        }
        path += rest;
        if path.ends_with('/') {
            let what = format!("{argument:?} is a folder, and no file for metrics");
            return Err(Error::new(ErrorCode::InvalidConfig, what)
                .hint(format!("write json-lines:{argument}{{container}}.jsonl")));
        }
        Ok(PathBuf::from(path))
    }

    fn old(&self, age: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{age}"));
        PathBuf::from(name)
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let (file, size) = match self.file.take() {
            Some(open) => open,
            None => open(&self.path, None)?,
        };
        let is_full = size > 0 && size + line.len() as u64 > self.most_bytes;
        let (mut file, size) = if is_full {
            let kept = Permissions::from(&file.metadata()?);
            drop(file);
            self.rotate()?;
            open(&self.path, Some(kept))?
        } else {
            (file, size)
        };
        if let Err(error) = file.write_all(line) {
            // Removes the partial line. If that fails, the next open removes it.
            let _ = file.set_len(size);
            return Err(error);
        }
        self.file = Some((file, size + line.len() as u64));
        Ok(())
    }

    fn rotate(&self) -> io::Result<()> {
        if self.keep == 0 {
            return fs::remove_file(&self.path);
        }
        for age in (1..self.keep).rev() {
            match fs::rename(self.old(age), self.old(age + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, self.old(1))
    }
}

fn no_label(name: &str, process: &Labels) -> Error {
    let known: Vec<String> = process
        .iter()
        .map(|(name, _)| format!("{{{name}}}"))
        .collect();
    let what = format!("a process has no label {name:?} for the name of its file");
    Error::new(ErrorCode::InvalidConfig, what).hint(format!("there are: {}", known.join(", ")))
}

/// Opens a file for appending, in a folder that is created if missing, and truncates an incomplete
/// last line. Returns the file and its size. The successor of a rotated file gets the permissions
/// `of` before the first byte.
fn open(path: &Path, of: Option<Permissions>) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    let options = options.read(true).append(true).create(true);
    if of.is_some() {
        options.mode(Permissions::INITIAL_MODE);
    }
    let mut file = match (options.open(path), path.parent()) {
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(folder)?;
            options.open(path)?
        }
        (opened, _) => opened?,
    };
    if let Some(permissions) = of {
        permissions.apply_to(&file)?;
    }
    let mut size = file.metadata()?.len();
    let mut block = [0; 4_096];
    let whole = size;
    while size > 0 {
        let from = size.saturating_sub(block.len() as u64);
        let part = &mut block[..(size - from) as usize];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(part)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            size = from + at as u64 + 1;
            break;
        }
        size = from;
    }
    if size < whole {
        file.set_len(size)?;
    }
    Ok((file, size))
}

#[derive(Serialize)]
struct LineShape<'a> {
    at: String,
    process: &'a Labels,
    samples: Vec<SampleShape<'a>>,
}

#[derive(Serialize)]
struct SampleShape<'a> {
    name: &'a str,
    labels: &'a Labels,
    kind: &'static str,
    #[serde(flatten)]
    value: ValueShape<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ValueShape<'a> {
    Plain {
        value: f64,
    },
    Histogram {
        buckets: Vec<(f64, u64)>,
        sum: f64,
        count: u64,
    },
    Summary {
        quantiles: &'a [(f64, f64)],
        sum: f64,
        count: u64,
    },
}

fn line(batch: &Batch) -> Result<Vec<u8>> {
    let samples = batch.samples.iter().map(|sample| SampleShape {
        name: sample.name.as_str(),
        labels: &sample.labels,
        kind: sample.value.kind(),
        value: match &sample.value {
            Value::Counter(value) | Value::Gauge(value) => ValueShape::Plain { value: *value },
            Value::Histogram(buckets) => ValueShape::Histogram {
                buckets: buckets.cumulative().collect(),
                sum: buckets.sum(),
                count: buckets.count(),
            },
            Value::Summary(quantiles) => ValueShape::Summary {
                quantiles: &quantiles.values,
                sum: quantiles.sum,
                count: quantiles.count,
            },
        },
    });
    let shape = LineShape {
        at: batch.at.to_string(),
        process: &batch.process,
        samples: samples.collect(),
    };
    let mut line = serde_json::to_vec(&shape).map_err(|error| {
        Error::new(ErrorCode::Internal, "a batch of metrics is no JSON").because(error)
    })?;
    line.push(b'\n');
    Ok(line)
}

impl MetricsSink for JsonLines {
    fn name(&self) -> &str {
        "json-lines"
    }

    fn take(&mut self, batch: &Batch) -> Result<()> {
        let line = line(batch)?;
        self.write(&line).map_err(|error| {
            let what = format!("metrics can't be written to {}", self.path.display());
            Error::new(ErrorCode::WriteFailed, what)
                .because(error)
                .hint("check the folder, its permissions and the space left")
        })
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buckets;
    use ardea_core::Timestamp;
    use serde_json::json;

    fn batch(number: f64) -> Batch {
        let at = Timestamp::from_secs(1_700_000_000);
        let mut batch = Batch::new(Labels::of([("container", "1/2")]), at, at);
        batch.push("level", &Labels::of([("a", "\"")]), Value::Gauge(number));
        batch
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(path).expect("it is there");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    #[test]
    fn a_batch_is_a_line_of_json() {
        let folder = tempfile::tempdir().expect("a folder");
        let setup = SinkSetup {
            argument: Some(format!("{}/m-{{container}}.jsonl", folder.path().display())),
            process: batch(0.0).process,
        };
        let mut sink = JsonLines::from_setup(&setup).expect("it has an argument");
        let mut told = batch(7.0);
        let mut buckets = Buckets::new(&[1.0]);
        buckets.observe(3.0);
        told.push("took", &Labels::none(), Value::Histogram(buckets));
        sink.take(&told).expect("written");
        let path = folder.path().join("m-1_2.jsonl");
        assert_eq!(
            lines(&path),
            [json!({
                "at": "2023-11-14T22:13:20Z",
                "process": {"container": "1/2"},
                "samples": [
                    {"name": "level", "labels": {"a": "\""}, "kind": "gauge", "value": 7.0},
                    {"name": "took", "labels": {}, "kind": "histogram",
                     "buckets": [[1.0, 0], [null, 1]], "sum": 3.0, "count": 1},
                ],
            })]
        );
    }

    #[test]
    fn a_full_file_is_put_aside_and_the_oldest_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("m.jsonl");
        let size = line(&batch(0.0)).expect("JSON").len() as u64;
        let mut sink = JsonLines::new(&path).most_bytes(2 * size).keep(2);
        for number in 0..9 {
            sink.take(&batch(f64::from(number))).expect("written");
        }
        let first = |name: &str| lines(&folder.path().join(name))[0]["samples"][0]["value"].clone();
        assert_eq!(first("m.jsonl"), json!(8.0));
        assert_eq!(first("m.jsonl.1"), json!(6.0));
        assert_eq!(first("m.jsonl.2"), json!(4.0));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 3);
    }

    #[test]
    fn a_file_that_follows_a_full_one_has_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("m.jsonl");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        for keep in [0, 1] {
            let mut sink = JsonLines::new(&path).most_bytes(1).keep(keep);
            sink.take(&batch(1.0)).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
            sink.take(&batch(2.0)).expect("written");
            assert_eq!((lines(&path).len(), mode(&path)), (1, 0o600));
        }
    }

    #[test]
    fn a_line_that_was_cut_off_is_gone_when_the_next_one_comes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("m.jsonl");
        for torn in ["{\"at\"".to_string(), "x".repeat(10_000)] {
            JsonLines::new(&path).take(&batch(1.0)).expect("written");
            let mut file = OpenOptions::new().append(true).open(&path).expect("open");
            file.write_all(torn.as_bytes()).expect("written");
        }
        JsonLines::new(&path).take(&batch(2.0)).expect("written");
        assert_eq!(lines(&path).len(), 3);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_an_error_that_names_it_and_the_next_batch_is_tried() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("taken/m.jsonl");
        fs::write(folder.path().join("taken"), "").expect("a file");
        let mut sink = JsonLines::new(&path);
        let error = sink.take(&batch(1.0)).expect_err("no folder");
        assert_eq!(error.code(), ErrorCode::WriteFailed);
        assert!(error.to_string().contains("taken/m.jsonl"), "{error}");
        fs::remove_file(folder.path().join("taken")).expect("removed");
        sink.take(&batch(1.0)).expect("written");
    }

    #[test]
    fn the_folder_of_a_file_is_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("var/log/ardea/m.jsonl");
        JsonLines::new(&path).take(&batch(1.0)).expect("written");
        assert_eq!(lines(&path).len(), 1);
    }
}
