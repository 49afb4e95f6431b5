//! A reader of the libsvm format.
//!
//! A line is an example: its label, then `index:number` of non-zero features by ascending index,
//! from one. Text after `#` is a comment.
//!
//! ```
//! use ardea_ml::libsvm::{self, LibsvmLimits};
//!
//! let text = "+1 1:0.5 3:2\n-1 2:1 # the second\n";
//! let examples = libsvm::parse(text.as_bytes(), "data.svm", &LibsvmLimits::default())?;
//! assert_eq!((examples.len(), examples.features()), (2, 3));
//! # Ok::<(), ardea_core::Error>(())
//! ```

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use ardea_core::{Error, ErrorCode, Result};

use crate::examples::Examples;

/// Limits of a file. They bound the memory that it takes: up to twice 12 bytes for each number and
/// 16 for each example, because lists grow by doubling, and the longest line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LibsvmLimits {
    /// The highest index.
    pub features: u32,
    /// The maximum number of examples.
    pub rows: usize,
    /// The maximum number of non-zero features of all examples together.
    pub numbers: usize,
    /// The longest line, in bytes.
    pub line_bytes: u64,
}

impl Default for LibsvmLimits {
    fn default() -> Self {
        LibsvmLimits {
            features: 1 << 24,
            rows: 1 << 28,
            numbers: 1 << 31,
            line_bytes: 16 << 20,
        }
    }
}

/// Reads a file. The number of features is the highest index.
///
/// # Errors
/// [`ErrorCode::ReadFailed`] if the file can't be read; [`ErrorCode::BadRecord`] with file and line
/// if a line is invalid; [`ErrorCode::LimitReached`] if the file exceeds a limit.
pub fn read(path: impl AsRef<Path>, limits: &LibsvmLimits) -> Result<Examples> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| cannot_read(&name).because(error))?;
    parse(BufReader::with_capacity(1 << 20, file), &name, limits)
}

fn cannot_read(name: &str) -> Error {
    Error::new(ErrorCode::ReadFailed, format!("cannot read {name}"))
}

/// Reads a text; `name` is its name in errors.
///
/// # Errors
/// As [`read`].
pub fn parse(mut text: impl BufRead, name: &str, limits: &LibsvmLimits) -> Result<Examples> {
    let mut examples = Examples::sparse(limits.features as usize);
    let mut row: Vec<(u32, f64)> = Vec::new();
    let (mut features, mut stored, mut line) = (0, 0_usize, Vec::new());
    for number in 1_u64.. {
        line.clear();
        let mut bounded = text.by_ref().take(limits.line_bytes.saturating_add(1));
        let bytes = bounded.read_until(b'\n', &mut line);
        if bytes.map_err(|error| cannot_read(name).because(error))? == 0 {
            break;
        }
        let at = || format!("{name}:{number}");
        let limit =
            |what: String| Error::new(ErrorCode::LimitReached, what).hint("raise the limit");
        if line.len() as u64 > limits.line_bytes {
            let what = format!("{} is longer than {} bytes", at(), limits.line_bytes);
            return Err(limit(what));
        }
        let bad = |reason: String| {
            let what = format!("{} is no example: {reason}", at());
            Error::new(ErrorCode::BadRecord, what).hint("a line is LABEL INDEX:NUMBER …")
        };
        let content = std::str::from_utf8(&line).map_err(|error| bad(error.to_string()))?;
        let content = content.split('#').next().unwrap_or_default();
        let mut words = content.split_ascii_whitespace();
        let Some(label) = words.next() else {
            continue;
        };
        if examples.len() == limits.rows {
            return Err(limit(format!(
                "{name} has more than {} examples",
                limits.rows
            )));
        }
        let label = finite(label).ok_or_else(|| bad(format!("{label:?} is no label")))?;
        row.clear();
        let mut last = 0;
        for word in words {
            let (index, number) = entry(word).map_err(&bad)?;
            if index <= last {
                return Err(bad(format!("index {index} follows {last}")));
            }
            if index > limits.features {
                let what = format!("{}: index {index} is above {}", at(), limits.features);
                return Err(limit(what));
            }
            if stored == limits.numbers {
                return Err(limit(format!(
                    "{name} has more than {} numbers",
                    limits.numbers
                )));
            }
            stored += 1;
            last = index;
            row.push((index - 1, number));
        }
        features = features.max(last);
        examples.push_sparse(label, &row)?;
    }
    examples.trim_features(features as usize);
    Ok(examples)
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Parses `index:number`.
fn entry(word: &str) -> std::result::Result<(u32, f64), String> {
    let parts = word.split_once(':');
    let (index, number) = parts.ok_or_else(|| format!("{word:?} has no colon"))?;
    let index = index
        .parse()
        .map_err(|_| format!("{index:?} is no index from one"))?;
    let number = finite(number).ok_or_else(|| format!("{number:?} is no finite number"))?;
    Ok((index, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Examples> {
        let limits = LibsvmLimits {
            features: 100,
            rows: 3,
            numbers: 5,
            line_bytes: 40,
        };
        parse(text.as_bytes(), "data.svm", &limits)
    }

    #[test]
    fn comments_and_empty_lines_are_skipped() {
        let examples = parsed("# head\n\n1 1:2 5:-1e-3\n-1\n0 5:1").unwrap();
        assert_eq!(examples.labels(), [1.0, -1.0, 0.0]);
        assert_eq!(examples.features(), 5);
        assert_eq!(examples.dot(0, &[1.0, 0.0, 0.0, 0.0, 1000.0]), 1.0);
    }

    #[test]
    fn a_bad_line_is_reported_with_file_and_line() {
        let bad = [
            ("x 1:2", "\"x\" is no label"),
            ("1 0:2", "index 0 follows 0"),
            ("1 2:2 2:3", "index 2 follows 2"),
            ("1 2", "\"2\" has no colon"),
            ("1 -2:1", "\"-2\" is no index"),
            ("1 2:nan", "\"nan\" is no finite number"),
            ("inf 2:1", "\"inf\" is no label"),
        ];
        for (line, reason) in bad {
            let error = parsed(&format!("1 1:1\n{line}\n")).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadRecord);
            let text = error.to_string();
            assert!(text.contains("data.svm:2 is no example"), "{text}");
            assert!(text.contains(reason), "{text}");
        }
    }

    #[test]
    fn lines_without_a_limit_are_read() {
        let limits = LibsvmLimits {
            line_bytes: u64::MAX,
            ..LibsvmLimits::default()
        };
        let examples = parse("1 1:2\n-1 3:4\n".as_bytes(), "data.svm", &limits).unwrap();
        assert_eq!((examples.len(), examples.features()), (2, 3));
    }

    #[test]
    fn limits_are_checked_before_memory_is_taken() {
        let long = format!("1 1:{}", "0".repeat(50));
        let many = "1 1:1 2:1 3:1\n1 1:1 2:1 3:1\n";
        for text in ["1 101:1", "1\n1\n1\n1\n", &long, many] {
            let error = parsed(text).unwrap_err();
            assert_eq!(error.code(), ErrorCode::LimitReached, "{text}");
        }
        let error = read("/nowhere/data.svm", &LibsvmLimits::default()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ReadFailed);
    }
}
