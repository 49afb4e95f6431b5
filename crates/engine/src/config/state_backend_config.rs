//! The location of keyed state.

use std::path::PathBuf;
use std::sync::Arc;

use ardea_config::{Kind, Resolved, Setting};
use ardea_core::{Result, StateBackend};

/// Default memory budget for keyed state whose cold part is on disk.
const MEMORY: &str = "1GiB";

/// The location of the keyed state of rolling aggregates, stateful steps and `distinct`. Windows
/// and joins always use memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum StateBackendConfig {
    /// All state in memory.
    #[default]
    Memory,
    /// Frequent keys in memory, others on a local disk. Requires the feature `state-disk`.
    ///
    /// The files do not survive the process: durable state is in the job's checkpoints.
    Disk {
        /// A folder on a local disk; several processes may share it.
        folder: PathBuf,
        /// The approximate memory budget of the process for this state, in bytes.
        memory: u64,
    },
}

/// The settings of a [`StateBackendConfig`].
pub(super) const STORE: Setting = Setting {
    key: "state.store",
    kind: Kind::Choice(&["memory", "disk"]),
    default: "memory",
    about: "where keyed state is stored: of rolling aggregates, stateful steps and distinct",
    trades: "memory is fastest; on disk it may be larger than memory, and a rarely used key costs a disk read",
};

pub(super) const FOLDER: Setting = Setting {
    key: "state.folder",
    kind: Kind::Text,
    default: "",
    about: "with state.store=disk: a folder on a local disk, which processes may share; by default ardea-state in the system's folder for temporary files",
    trades: "the files do not survive the process; best is a fast dedicated disk, not a file system in memory",
};

pub(super) const BESIDE: Setting = Setting {
    key: "state.memory",
    kind: Kind::Bytes {
        least: 16 << 20,
        most: 1 << 44,
    },
    default: MEMORY,
    about: "with state.store=disk: approximate memory that a process uses for state",
    trades: "more memory holds more keys, so that fewer are read from disk",
};

impl StateBackendConfig {
    /// Creates the configuration from settings.
    pub(super) fn from_settings(resolved: &Resolved) -> Result<Self> {
        if resolved.choice(STORE.key)? == "memory" {
            return Ok(StateBackendConfig::Memory);
        }
        let folder = match resolved.text(FOLDER.key)? {
            "" => std::env::temp_dir().join("ardea-state"),
            folder => PathBuf::from(folder),
        };
        let memory = resolved.bytes(BESIDE.key)?;
        Ok(StateBackendConfig::Disk { folder, memory })
    }

    /// Opens the store of a process; `None` if all state is in memory. A [`Node`](crate::Node)
    /// opens its own store.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if this build does not
    /// support it.
    pub fn store(&self) -> Result<Option<Arc<dyn StateBackend>>> {
        match self {
            StateBackendConfig::Memory => Ok(None),
            StateBackendConfig::Disk { folder, memory } => on_disk(folder, *memory).map(Some),
        }
    }
}

#[cfg(feature = "state-disk")]
fn on_disk(folder: &std::path::Path, memory: u64) -> Result<Arc<dyn StateBackend>> {
    Ok(Arc::new(ardea_state::disk::DiskStore::new(folder, memory)))
}

/// The fallback of a build without disk support.
#[cfg(not(feature = "state-disk"))]
fn on_disk(folder: &std::path::Path, _: u64) -> Result<Arc<dyn StateBackend>> {
    use ardea_core::{Error, ErrorCode};

    let what = format!(
        "state is configured to be on disk in {}, but this program was built without disk state",
        folder.display()
    );
    Err(Error::new(ErrorCode::InvalidConfig, what)
        .hint("build it with the feature `state-disk` of ardea, or leave state.store at memory"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NODE_SETTINGS, NodeConfig};
    use ardea_config::{Resolver, Schema};

    fn place(flags: &[&str]) -> StateBackendConfig {
        let schema = Schema::of(NODE_SETTINGS);
        let flags = flags.iter().copied();
        let resolved = Resolver::new(&schema).flags(flags).resolve().unwrap();
        NodeConfig::from_settings(&resolved).unwrap().state
    }

    #[test]
    fn state_lies_in_memory_unless_told_and_then_where_it_is_told() {
        assert_eq!(place(&["state.folder=x"]), StateBackendConfig::Memory);
        let told = place(&["state.store=disk", "state.folder=x/y", "state.memory=64MiB"]);
        let folder = PathBuf::from("x/y");
        let memory = 64 << 20;
        assert_eq!(told, StateBackendConfig::Disk { folder, memory });
        let StateBackendConfig::Disk { folder, memory } = place(&["state.store=disk"]) else {
            panic!("it should lie on disk");
        };
        assert!(folder.ends_with("ardea-state"));
        assert_eq!(memory, 1 << 30);
    }

    #[cfg(not(feature = "state-disk"))]
    #[test]
    fn a_program_without_the_means_says_how_to_get_them() {
        let told = place(&["state.store=disk"]).store().unwrap_err();
        assert!(told.to_string().contains("built without"), "{told}");
    }

    #[test]
    fn the_book_has_a_row_for_each_setting_with_its_default() {
        let book = include_str!("../../../../docs/state-and-timers.md");
        for setting in [STORE, FOLDER, BESIDE] {
            let row = format!("| `{}` | {} |", setting.key, setting.default).replace("|  |", "| |");
            assert!(
                book.contains(&row),
                "docs/state-and-timers.md should have {row}"
            );
        }
    }
}
