//! Process-wide claims on output paths: each file is written by one sink only.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ardea_core::{Error, ErrorCode, Result, real_path};
use ardea_filesystem::Shown;

/// The paths claimed by the sinks of this process.
static CLAIMED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// An exclusive claim on the paths of an output, released on drop.
#[derive(Debug)]
pub(crate) struct Claim(Vec<PathBuf>);

impl Claim {
    /// Claims the paths of the output of one sink instance, for example a file and its part.
    ///
    /// Called while a job is built, so that a second sink is refused before either has written.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if another sink has claimed one of the paths.
    pub(crate) fn take(names: &[PathBuf]) -> Result<Self> {
        let names: Vec<_> = names.iter().map(|name| real_path(name)).collect();
        let mut claimed = claimed();
        if let Some(name) = names.iter().find(|name| claimed.contains(*name)) {
            return Err(taken(name));
        }
        claimed.extend(names.iter().cloned());
        Ok(Claim(names))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = claimed();
        for name in &self.0 {
            claimed.remove(name);
        }
    }
}

fn claimed() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn taken(name: &Path) -> Error {
    Error::new(
        ErrorCode::InvalidJob,
        format!("two sinks write to {}", name.shown()),
    )
    .hint(
        "give each its own file, which is called `….part` until it is whole, or merge their streams before one sink",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(path: &Path) -> Result<Claim> {
        Claim::take(&[path.to_path_buf()])
    }

    #[test]
    fn an_output_has_one_sink_at_a_time() {
        let path = Path::new("claimed-by-a-test");
        let first = claim(path).unwrap();
        assert_eq!(claim(path).unwrap_err().code(), ErrorCode::InvalidJob);
        drop(first);
        assert!(claim(path).is_ok());
    }

    #[test]
    fn a_refused_claim_leaves_nothing_claimed() {
        let names = ["refused-1", "refused-2"].map(PathBuf::from);
        let first = claim(&names[1]).unwrap();
        assert!(Claim::take(&names).is_err());
        assert!(claim(&names[0]).is_ok());
        drop(first);
        assert!(Claim::take(&names).is_ok());
    }

    #[test]
    fn another_name_does_not_give_an_output_a_second_sink() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("out"), dir.path().join("link"));
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        let _first = claim(&path).unwrap();
        for other in [link.join("out"), dir.path().join("./out")] {
            assert!(claim(&other).is_err(), "{other:?}");
        }
        let deep = |folder: &Path| claim(&folder.join("not/yet/there"));
        let _second = deep(dir.path()).unwrap();
        assert!(
            deep(&link).is_err(),
            "neither where directories will be made"
        );
    }
}
