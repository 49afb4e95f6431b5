//! One output, one sink: two that wrote to the same file would each replace what the other wrote.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ardea_core::{Error, ErrorCode, Instance, Result, real_path};

/// The outputs that sinks of this process write to now.
static CLAIMED: Mutex<BTreeSet<(PathBuf, u32)>> = Mutex::new(BTreeSet::new());

/// The right to write to an output, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim(PathBuf, u32);

impl Claim {
    /// Claims the output of one instance of a sink.
    ///
    /// Made while a job is put together, so that a second sink is refused before either has written.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if another sink has it.
    pub(crate) fn take(path: &Path, instance: Instance) -> Result<Self> {
        let path = real_path(path);
        let claim = (path.clone(), instance.index);
        if CLAIMED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(claim)
        {
            return Ok(Claim(path, instance.index));
        }
        Err(Error::new(
            ErrorCode::InvalidJob,
            format!("two sinks write to {}", path.display()),
        )
        .hint("give each its own file, or merge their streams before one sink"))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let claim = (std::mem::take(&mut self.0), self.1);
        CLAIMED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&claim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_has_one_sink_at_a_time() {
        let path = Path::new("claimed-by-a-test");
        let first = Claim::take(path, Instance::ONLY).unwrap();
        assert_eq!(
            Claim::take(path, Instance::ONLY).unwrap_err().code(),
            ErrorCode::InvalidJob
        );
        drop(first);
        assert!(Claim::take(path, Instance::ONLY).is_ok());
    }

    #[test]
    fn another_name_does_not_give_an_output_a_second_sink() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("out"), dir.path().join("link"));
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        let _first = Claim::take(&path, Instance::ONLY).unwrap();
        for other in [link.join("out"), dir.path().join("./out")] {
            assert!(Claim::take(&other, Instance::ONLY).is_err(), "{other:?}");
        }
        let deep = |folder: &Path| Claim::take(&folder.join("not/yet/there"), Instance::ONLY);
        let _second = deep(dir.path()).unwrap();
        assert!(
            deep(&link).is_err(),
            "neither where directories will be made"
        );
    }
}
