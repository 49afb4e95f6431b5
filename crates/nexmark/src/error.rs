//! Errors of generating and writing events, with hints for the user.

use std::io;

use ardea_core::ErrorCode;

/// The error of a stream of events that could not be generated.
#[derive(Debug, thiserror::Error)]
pub enum NexmarkError {
    /// A setting has an invalid value; nothing was generated.
    #[error("{name} cannot be {value}: {rule}")]
    Setting {
        /// The name of the setting in its configuration struct.
        name: &'static str,
        /// The invalid value.
        value: String,
        /// The rule that the setting must satisfy, as a sentence.
        rule: &'static str,
    },
    /// The writer failed at a line; the lines before it were passed to the writer, the rest was
    /// not.
    #[error(
        "writing event {line} of the NEXMark file failed ({source}); free disk space or fix the output, then generate again"
    )]
    Write {
        /// The number of events passed to the writer before this one.
        line: u64,
        /// The error of the writer.
        source: io::Error,
    },
}

impl NexmarkError {
    /// Returns the error code of the project.
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
