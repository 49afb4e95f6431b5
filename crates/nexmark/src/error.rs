//! What can go wrong while events are made or written, told so that a person knows what to do next.

use std::io;

use ardea_core::ErrorCode;

/// Why a stream of events could not be made.
#[derive(Debug, thiserror::Error)]
pub enum NexmarkError {
    /// A setting has a value that no stream can be made with; nothing was generated.
    #[error("{name} cannot be {value}: {rule}")]
    Setting {
        /// The setting, by the name it has in its configuration struct.
        name: &'static str,
        /// The value it was given.
        value: String,
        /// What the setting must be, as a sentence.
        rule: &'static str,
    },
    /// The writer refused a line; the lines before it were handed over and the rest was not.
    #[error(
        "writing event {line} of the NEXMark file failed ({source}); make room or mend the output, then generate again"
    )]
    Write {
        /// How many events had been handed to the writer before this one.
        line: u64,
        /// What the writer said.
        source: io::Error,
    },
}

impl NexmarkError {
    /// Which of the project's codes it is.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Setting { .. } => ErrorCode::InvalidConfig,
            Self::Write { .. } => ErrorCode::WriteFailed,
        }
    }

    pub(crate) fn setting(name: &'static str, value: impl ToString, rule: &'static str) -> Self {
        Self::Setting {
            name,
            value: value.to_string(),
            rule,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_setting_is_named_with_its_value_and_its_rule() {
        let error = NexmarkError::setting("events_per_second", 0, "it must be at least 1");
        assert_eq!(
            error.to_string(),
            "events_per_second cannot be 0: it must be at least 1"
        );
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
    }
}
