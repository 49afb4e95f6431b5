//! Cleanup of the logs of hosts that are gone, by age and total size.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A log file.
struct LogFile {
    path: PathBuf,
    modified: SystemTime,
    bytes: u64,
}

/// Removes logs of hosts that do not run: first those unmodified for `time`, then the oldest until
/// the remaining ones have at most `bytes`. A file that can't be removed is tried again when the
/// next host starts.
pub(super) fn sweep(folder: &Path, is_running: impl Fn(&str) -> bool, time: Duration, bytes: u64) {
    let now = SystemTime::now();
    let mut files: Vec<LogFile> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let (host, _) = name.to_str()?.rsplit_once(".log")?;
            let metadata = entry.metadata().ok()?;
            (!is_running(host) && metadata.is_file()).then_some(LogFile {
                path: entry.path(),
                modified: metadata.modified().ok()?,
                bytes: metadata.len(),
            })
        })
        .collect();
    files.sort_by_key(|file| file.modified);
    let mut all: u64 = files.iter().map(|file| file.bytes).sum();
    for file in files {
        let age = now.duration_since(file.modified).unwrap_or_default();
        if age < time && all <= bytes {
            break;
        }
        let _ = fs::remove_file(&file.path);
        all -= file.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_hosts_that_are_gone_are_bounded_and_those_of_hosts_that_run_stay() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        for (name, ago) in [("old", 90), ("middle.1", 40), ("new", 20), ("runs", 90)] {
            let name = match name.split_once('.') {
                Some((name, age)) => format!("{name}.log.{age}"),
                None => format!("{name}.log"),
            };
            let path = folder.path().join(name);
            fs::write(&path, [b'x'; 100]).unwrap();
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(now - Duration::from_secs(ago)).unwrap();
        }
        fs::write(folder.path().join("start.lock"), "").unwrap();
        let left = |bytes| {
            let is_running = |host: &str| host == "runs";
            sweep(folder.path(), is_running, Duration::from_secs(60), bytes);
            let names = fs::read_dir(folder.path()).unwrap();
            let names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        };
        assert_eq!(
            left(200),
            ["middle.log.1", "new.log", "runs.log", "start.lock"]
        );
        assert_eq!(left(100), ["new.log", "runs.log", "start.lock"]);
    }
}
