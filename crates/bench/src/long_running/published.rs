//! The output files of a job's sinks, and their verification.

use std::fs;
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};

/// The errors in the output of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Verdict {
    /// The number of missing records.
    pub(crate) lost: u64,
    /// The number of records that are there more than once, or should not be there.
    pub(crate) duplicated: u64,
}

/// Returns the lines of all complete files of a folder, parsed by `read`. A line that cannot be
/// parsed counts as unexpected.
///
/// # Errors
/// [`ErrorCode::ReadFailed`] if a file can't be read.
pub(crate) fn lines<T>(folder: &Path, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>> {
    let failed = |error: std::io::Error| {
        let what = format!("cannot read what was published in {}", folder.display());
        Error::new(ErrorCode::ReadFailed, what).because(error)
    };
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|ending| ending == "txt") {
            let text = fs::read_to_string(&path).map_err(failed)?;
            lines.extend(text.lines().filter_map(&read));
        }
    }
    Ok(lines)
}

/// Verifies receipts, as pairs of account and number. The numbers of each account must run from
/// one, once each, to its count in `paid`.
pub(crate) fn of_receipts(mut receipts: Vec<(u64, u64)>, mut paid: Vec<u64>) -> Verdict {
    receipts.sort_unstable();
    let came = receipts.len();
    receipts.dedup();
    paid.sort_unstable();
    let of_one = paid.chunk_by(|one, other| one == other);
    let expected = of_one.flat_map(|visits| visits.iter().copied().zip(1_u64..));
    let (mut all, mut right, mut at) = (0, 0, 0);
    for wanted in expected {
        all += 1;
        while receipts.get(at).is_some_and(|receipt| *receipt < wanted) {
            at += 1;
        }
        right += usize::from(receipts.get(at) == Some(&wanted));
    }
    Verdict {
        lost: all - right as u64,
        duplicated: (came - right) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_and_what_is_too_much_is_counted() {
        let verdict = |receipts: &[(u64, u64)]| {
            let Verdict { lost, duplicated } = of_receipts(receipts.to_vec(), vec![7, 0, 7]);
            (lost, duplicated)
        };
        assert_eq!(verdict(&[(7, 2), (7, 1), (0, 1)]), (0, 0));
        assert_eq!(verdict(&[(7, 1), (7, 1), (0, 1)]), (1, 1));
        // One payment was applied twice, and another not at all.
        assert_eq!(verdict(&[(7, 1), (0, 1), (0, 2)]), (1, 1));
        assert_eq!(verdict(&[(9, 1)]), (3, 1));
        assert_eq!(verdict(&[]), (3, 0));
    }

    #[test]
    fn only_whole_files_count() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("out-1.txt"), "1\n2\n").unwrap();
        fs::write(folder.path().join("out-2.txt.part"), "3\n").unwrap();
        let read = lines(folder.path(), |line| line.parse::<u64>().ok());
        assert_eq!(read.unwrap(), [1, 2]);
    }
}
