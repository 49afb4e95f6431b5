//! The environment of the programs that tests start.

use std::process::Command;

/// What the tests themselves are told by their environment, such as `ARDEA_SERVICES_REQUIRED`, is no setting of what they start.
pub fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ARDEA_") {
            command.env_remove(name);
        }
    }
}
