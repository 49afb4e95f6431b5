//! The environment of the programs that tests start.

use std::process::Command;

/// Removes all settings from a command's environment: those of the tests, such as
/// `ARDEA_SERVICES_REQUIRED`, are not meant for it.
pub fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ARDEA_") {
            command.env_remove(name);
        }
    }
}
