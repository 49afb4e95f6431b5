//! The settings of a job's dead letters.

use std::path::{Path, PathBuf};

use ardea_config::{Kind, Resolved, Setting};
use ardea_core::{DeadLetters, Error, ErrorCode, Result};

use super::to_bounded_file;

const PLACE: &str = "dead_letters";
const LIMIT: &str = "dead_letters_limit";

/// The placeholder for the container number in a file name.
const CONTAINER: &str = "{container}";

/// The settings of a job's dead letters.
///
/// ```
/// use ardea_connectors::dead_letters::{DEAD_LETTER_SETTINGS, DeadLetterConfig, DeadLetterTarget};
/// use ardea_config::{Resolver, Schema};
///
/// let schema = Schema::of(DEAD_LETTER_SETTINGS);
/// let resolved = Resolver::new(&schema).flags(["dead_letters=bad.jsonl"]).resolve()?;
/// let config = DeadLetterConfig::from_settings(&resolved)?.expect("a place is named");
/// assert_eq!(config.place, DeadLetterTarget::File("bad.jsonl".into()));
/// # Ok::<(), ardea_core::Error>(())
/// ```
pub static DEAD_LETTER_SETTINGS: &[Setting] = &[
    Setting {
        key: PLACE,
        kind: Kind::Text,
        default: "",
        about: "where dead letters go: a file (on a cluster a folder, in which each container has a file, or a file with {container} in its name), or kafka:BROKERS/TOPIC",
        trades: "without one they are counted, and the latest 100 are kept until the process ends",
    },
    Setting {
        key: LIMIT,
        kind: Kind::Bytes {
            least: 4 << 10,
            most: 1 << 60,
        },
        default: "1GiB",
        about: "the largest size of a file of dead letters; letters beyond it are counted, and not written",
        trades: "larger keeps more of an input that is bad throughout, and takes more of the disk",
    },
];

/// The destination of a job's dead letters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeadLetterTarget {
    /// A file of JSON lines. On a cluster, a folder with one file per container, unless the name
    /// contains `{container}`.
    File(PathBuf),
    /// A Kafka topic.
    Kafka {
        /// Addresses of brokers, separated by commas.
        brokers: String,
        /// The topic's name.
        topic: String,
    },
}

impl DeadLetterTarget {
    /// Parses the value of the setting.
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let is_scheme =
            |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase());
        match text.split_once(':').filter(|(word, _)| is_scheme(word)) {
            None => Ok(DeadLetterTarget::File(PathBuf::from(text))),
            Some(("kafka", place)) => match place.split_once('/') {
                Some((brokers, topic)) if !brokers.is_empty() && is_topic(topic) => {
                    Ok(DeadLetterTarget::Kafka {
                        brokers: brokers.to_string(),
                        topic: topic.to_string(),
                    })
                }
                _ => Err("kafka needs brokers and a topic: kafka:HOST:PORT/TOPIC".to_string()),
            },
            Some((word, _)) => Err(format!(
                "unknown destination {word}: name a file (./{text} if that is its name) or kafka:HOST:PORT/TOPIC"
            )),
        }
    }
}

/// Returns true if this is a valid name of a Kafka topic.
fn is_topic(name: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && name.len() <= 249 && name.chars().all(is_legal)
}

/// The values of [`DEAD_LETTER_SETTINGS`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterConfig {
    /// The destination.
    pub place: DeadLetterTarget,
    /// The maximum size of a file, in bytes.
    pub most_bytes: u64,
}

impl DeadLetterConfig {
    /// Reads the settings; returns `None` if no destination is set or the schema lacks these
    /// settings.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if the destination is invalid.
    pub fn from_settings(resolved: &Resolved) -> Result<Option<Self>> {
        if resolved.value(PLACE).is_none() {
            return Ok(None);
        }
        let text = resolved.text(PLACE)?;
        if text.is_empty() {
            return Ok(None);
        }
        let place = DeadLetterTarget::parse(text).map_err(|why| resolved.refuse(PLACE, why))?;
        Ok(Some(DeadLetterConfig {
            place,
            most_bytes: resolved.bytes(LIMIT)?,
        }))
    }

    /// Opens the file of the container with the number `container`; with `None`, the file of a job
    /// that runs only in this process.
    ///
    /// # Errors
    /// [`ErrorCode::WriteFailed`] if the file cannot be opened, [`ErrorCode::InvalidConfig`] if the
    /// destination is not a file.
    pub fn open_file(&self, job: &str, container: Option<u32>) -> Result<DeadLetters> {
        let DeadLetterTarget::File(path) = &self.place else {
            let what = "the destination of dead letters is not a file";
            return Err(Error::new(ErrorCode::InvalidConfig, what));
        };
        to_bounded_file(file_of(path, job, container)?, self.most_bytes)
    }
}

/// Returns the path of a process's file. For a container, creates the folder of the file.
fn file_of(path: &Path, job: &str, container: Option<u32>) -> Result<PathBuf> {
    let text = path.to_string_lossy();
    let number = container.unwrap_or(0).to_string();
    if text.contains(CONTAINER) {
        let file = PathBuf::from(text.replace(CONTAINER, &number));
        file.parent().map_or(Ok(()), make_folder)?;
        return Ok(file);
    }
    if container.is_none() {
        return Ok(path.to_path_buf());
    }
    make_folder(path)?;
    let job = job.replace('/', "_");
    Ok(path.join(format!("{job}-{number}.jsonl")))
}

fn make_folder(folder: &Path) -> Result<()> {
    // A file in the working directory has an empty parent.
    if folder.as_os_str().is_empty() {
        return Ok(());
    }
    ardea_filesystem::create_folder(folder).map_err(|error| {
        let what = format!(
            "cannot make the folder of dead letters {}",
            folder.display()
        );
        Error::new(ErrorCode::WriteFailed, what)
            .because(error)
            .hint(
                "on a cluster dead_letters names a folder, or a file with {container} in its name",
            )
    })
}

#[cfg(test)]
mod tests {
    use ardea_config::{Resolver, Schema};

    use super::*;

    fn config(flags: &[&str]) -> Result<Option<DeadLetterConfig>> {
        let schema = Schema::of(DEAD_LETTER_SETTINGS);
        let flags = flags.iter().copied();
        DeadLetterConfig::from_settings(&Resolver::new(&schema).flags(flags).resolve()?)
    }

    #[test]
    fn a_place_is_a_file_or_a_topic() {
        assert_eq!(config(&[]).unwrap(), None);
        let place = |text: &str| {
            config(&[&format!("dead_letters={text}")])
                .unwrap()
                .unwrap()
                .place
        };
        for file in ["bad.jsonl", "/var/a:b", "./kafka:x", "C:x"] {
            assert_eq!(place(file), DeadLetterTarget::File(file.into()), "{file}");
        }
        let topic = DeadLetterTarget::Kafka {
            brokers: "a:9092,b:9092".into(),
            topic: "bad.records".into(),
        };
        assert_eq!(place("kafka:a:9092,b:9092/bad.records"), topic);
    }

    #[test]
    fn a_place_that_can_not_be_is_refused_with_what_to_write() {
        for (wrong, hint) in [
            ("kafka:a:9092", "kafka:HOST:PORT/TOPIC"),
            ("kafka:/bad", "kafka:HOST:PORT/TOPIC"),
            ("kafka:a:9092/bad records", "kafka:HOST:PORT/TOPIC"),
            ("nats:a/b", "./nats:a/b"),
        ] {
            let error = config(&[&format!("dead_letters={wrong}")]).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidConfig);
            assert!(error.message().contains(hint), "{error}");
        }
        assert!(config(&["dead_letters=x", "dead_letters_limit=1KiB"]).is_err());
    }

    #[test]
    fn each_container_has_its_own_file() {
        let folder = tempfile::tempdir().unwrap();
        let bad = folder.path().join("bad");
        let file = |container| file_of(&bad, "words", container).unwrap();
        assert_eq!(file(None), bad);
        assert_eq!(file(Some(3)), bad.join("words-3.jsonl"));
        assert!(bad.is_dir());
        let named = folder.path().join("new/{container}.jsonl");
        let named = file_of(&named, "words", Some(3)).unwrap();
        assert_eq!(named, folder.path().join("new/3.jsonl"));
        assert!(folder.path().join("new").is_dir());
        let named = file_of(Path::new("{container}.jsonl"), "words", Some(3)).unwrap();
        assert_eq!(named, Path::new("3.jsonl"));
    }
}
