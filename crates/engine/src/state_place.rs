//! Where keyed state lies.

use std::path::PathBuf;
use std::sync::Arc;

use ardea_config::{Kind, Resolved, Setting};
use ardea_core::{LocalStore, Result};

/// How much memory state on disk has beside it unless told.
const MEMORY: &str = "1GiB";

/// Where the state of keys lies: of rolling aggregates, stateful steps and `distinct`. Windows and joins keep theirs in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum StatePlace {
    /// All of it in memory.
    #[default]
    Memory,
    /// The keys that come often in memory, the others on a local disk. Takes the feature `state-disk`.
    ///
    /// What is there is gone with the process: what a job has to remember beyond that is in its snapshots, wherever its state lies.
    Disk {
        /// A folder, which several processes may share. It has to be on a disk of this machine.
        folder: PathBuf,
        /// How many bytes of memory the process may take for it, about.
        memory: u64,
    },
}

/// The settings of a [`StatePlace`].
pub(crate) const STORE: Setting = Setting {
    key: "state.store",
    kind: Kind::Choice(&["memory", "disk"]),
    default: "memory",
    about: "where the state of keys lies: of rolling aggregates, stateful steps and distinct",
    trades: "in memory it is quickest; on disk it may be larger than memory, and a key that has not come for long costs a look at the disk",
};

pub(crate) const FOLDER: Setting = Setting {
    key: "state.folder",
    kind: Kind::Text,
    default: "",
    about: "with state.store=disk: a folder on a local disk, which processes may share; by default ardea-state in the system's folder for temporary files",
    trades: "what is there is gone with the process; a quick disk of its own is best, and none that is memory itself",
};

pub(crate) const BESIDE: Setting = Setting {
    key: "state.memory",
    kind: Kind::Bytes {
        least: 16 << 20,
        most: 1 << 44,
    },
    default: MEMORY,
    about: "with state.store=disk: how much memory a process takes for state, about",
    trades: "more holds more keys, so that fewer have to be looked for on disk",
};

impl StatePlace {
    /// As the settings say.
    pub(crate) fn from_settings(resolved: &Resolved) -> Result<Self> {
        if resolved.choice(STORE.key)? == "memory" {
            return Ok(StatePlace::Memory);
        }
        let folder = match resolved.text(FOLDER.key)? {
            "" => std::env::temp_dir().join("ardea-state"),
            folder => PathBuf::from(folder),
        };
        let memory = resolved.bytes(BESIDE.key)?;
        Ok(StatePlace::Disk { folder, memory })
    }

    /// The store of a process; none if everything is in memory. A [`Node`](crate::Node) makes its own.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`](ardea_core::ErrorCode::InvalidConfig) if this was built without one.
    pub fn store(&self) -> Result<Option<Arc<dyn LocalStore>>> {
        match self {
            StatePlace::Memory => Ok(None),
            StatePlace::Disk { folder, memory } => on_disk(folder, *memory).map(Some),
        }
    }
}

#[cfg(feature = "state-disk")]
fn on_disk(folder: &std::path::Path, memory: u64) -> Result<Arc<dyn LocalStore>> {
    Ok(Arc::new(ardea_state::disk::DiskStore::new(folder, memory)))
}

/// The same, without the means.
#[cfg(not(feature = "state-disk"))]
fn on_disk(folder: &std::path::Path, _: u64) -> Result<Arc<dyn LocalStore>> {
    use ardea_core::{Error, ErrorCode};

    let what = format!(
        "state is to lie in {}, and this program was built without what that takes",
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

    fn place(flags: &[&str]) -> StatePlace {
        let schema = Schema::of(NODE_SETTINGS);
        let flags = flags.iter().copied();
        let resolved = Resolver::new(&schema).flags(flags).resolve().unwrap();
        NodeConfig::from_settings(&resolved).unwrap().state
    }

    #[test]
    fn state_lies_in_memory_unless_told_and_then_where_it_is_told() {
        assert_eq!(place(&["state.folder=x"]), StatePlace::Memory);
        let told = place(&["state.store=disk", "state.folder=x/y", "state.memory=64MiB"]);
        let folder = PathBuf::from("x/y");
        let memory = 64 << 20;
        assert_eq!(told, StatePlace::Disk { folder, memory });
        let StatePlace::Disk { folder, memory } = place(&["state.store=disk"]) else {
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
        let book = include_str!("../../../docs/state-and-timers.md");
        for setting in [STORE, FOLDER, BESIDE] {
            let row = format!("| `{}` | {} |", setting.key, setting.default).replace("|  |", "| |");
            assert!(
                book.contains(&row),
                "docs/state-and-timers.md should have {row}"
            );
        }
    }
}
