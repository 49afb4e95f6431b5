//! The destination of a job's dead letters, from its settings.

use ardea_config::Resolved;
use ardea_connectors::dead_letters::{DeadLetterConfig, DeadLetterTarget};
use ardea_core::{DeadLetters, Result};
#[cfg(not(feature = "kafka"))]
use ardea_core::{Error, ErrorCode};

const PLACE: &str = "dead_letters";
const WITHOUT_KAFKA: &str = "this program is built without the feature kafka of ardea";

/// Refuses a destination of dead letters that this program cannot write to, without opening it.
///
/// # Errors
/// [`InvalidConfig`](ardea_core::ErrorCode::InvalidConfig), with the place of the setting.
pub(crate) fn check(resolved: &Resolved) -> Result<()> {
    let config = DeadLetterConfig::from_settings(resolved)?;
    match config.map(|config| config.place) {
        Some(DeadLetterTarget::Kafka { .. }) if !cfg!(feature = "kafka") => {
            Err(resolved.refuse(PLACE, WITHOUT_KAFKA))
        }
        _ => Ok(()),
    }
}

/// Opens the dead letters of a job in this process, which is the given container of a cluster or
/// runs the job alone.
///
/// # Errors
/// As [`check`], and [`WriteFailed`](ardea_core::ErrorCode::WriteFailed) if a file can't be opened.
pub(crate) fn open(
    config: Option<&DeadLetterConfig>,
    job: &str,
    container: Option<u32>,
) -> Result<DeadLetters> {
    let Some(config) = config else {
        return Ok(DeadLetters::default());
    };
    match &config.place {
        DeadLetterTarget::File(_) => config.open_file(job, container),
        DeadLetterTarget::Kafka { brokers, topic } => to_topic(brokers, topic, job),
    }
}

#[cfg(feature = "kafka")]
fn to_topic(brokers: &str, topic: &str, job: &str) -> Result<DeadLetters> {
    ardea_connectors::kafka::dead_letters(brokers, topic).open(job)
}

#[cfg(not(feature = "kafka"))]
fn to_topic(_: &str, _: &str, _: &str) -> Result<DeadLetters> {
    let what = format!("dead letters can't go to Kafka: {WITHOUT_KAFKA}");
    Err(Error::new(ErrorCode::InvalidConfig, what).hint("name a file: dead_letters=FILE"))
}
