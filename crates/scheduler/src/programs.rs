//! The location of a job's program on this machine.

use std::any::Any;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::artifacts::{Cache, CachedPackage, Digest, PackageStores, StoreOptions};
use ardea_coordination::control::ProgramRef;
use ardea_core::{Error, ErrorCode, Result};

use crate::Pending;

/// The access to the unpacked programs of jobs on this machine.
pub trait Programs: Send + Sync + fmt::Debug {
    /// Returns the folder with the files of a program's package. If the package is not on this
    /// machine, it is fetched from the package store at the URL `packages`.
    fn unpacked<'a>(&'a self, program: &'a ProgramRef, packages: &'a str) -> Pending<'a, Unpacked>;
}

/// The access to programs through this machine's [`Cache`], which fetches packages from package
/// stores.
#[derive(Clone, Debug)]
pub struct CachedPrograms {
    cache: Cache,
    stores: PackageStores,
    options: StoreOptions,
}

impl CachedPrograms {
    /// Creates the access with a cache. Package stores of the kinds `stores` are opened with
    /// `options`.
    pub fn new(cache: Cache, stores: PackageStores, options: StoreOptions) -> Self {
        CachedPrograms {
            cache,
            stores,
            options,
        }
    }
}

impl Programs for CachedPrograms {
    fn unpacked<'a>(&'a self, program: &'a ProgramRef, packages: &'a str) -> Pending<'a, Unpacked> {
        Box::pin(async move {
            let digest: Digest = program.package.parse()?;
            let store = self.stores.open(packages, &self.options)?;
            let package = self.cache.fetch(&digest, &*store).await?;
            Ok(Unpacked::from(package))
        })
    }
}

/// The unpacked files of a package, in a folder of this machine.
#[derive(Clone)]
pub struct Unpacked {
    folder: PathBuf,
    /// The package in the cache, protected from eviction while this value exists.
    cached: Option<Arc<CachedPackage>>,
    /// Another guard, dropped when the files are no longer needed.
    held: Option<Arc<dyn Any + Send + Sync>>,
}

/// Converts a cached package. The files stay in the cache while the result exists, or a process
/// started by [`spawning`](Unpacked::spawning) runs.
impl From<CachedPackage> for Unpacked {
    fn from(package: CachedPackage) -> Self {
        Unpacked {
            folder: package.folder().to_path_buf(),
            cached: Some(Arc::new(package)),
            held: None,
        }
    }
}

impl Unpacked {
    /// Creates the value for files in this folder, which nothing protects.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Unpacked {
            folder: folder.into(),
            cached: None,
            held: None,
        }
    }

    /// Adds a guard, which is held while this process needs the files. For a package of a
    /// [`Cache`], use `from` instead, which also protects the files for started processes.
    pub fn with_guard(mut self, held: Arc<dyn Any + Send + Sync>) -> Self {
        self.held = Some(held);
        self
    }

    /// Calls `spawn`, which starts a process that needs the files. The files are retained while the
    /// started process runs.
    ///
    /// # Errors
    ///
    /// If the lock can't be passed on to the process. No process was started then.
    pub fn spawning<T>(&self, spawn: impl FnOnce() -> T) -> Result<T> {
        match &self.cached {
            Some(package) => package.spawning(spawn),
            None => Ok(spawn()),
        }
    }

    /// Returns the folder with the files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of the program in the package.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::StartFailed`] if the program is missing, lies outside the package, or can't be
    /// run.
    pub fn executable(&self, program: &ProgramRef) -> Result<PathBuf> {
        let name = Path::new(&program.executable);
        let refused = |why: &str| {
            Error::new(
                ErrorCode::StartFailed,
                format!("the program {:?} can't be run", program.executable),
            )
            .because(why.to_string())
            .hint("pack the job again, with an executable of that name in it")
        };
        if !name
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
        {
            return Err(refused("it is not a path within the package"));
        }
        let path = self.folder.join(name);
        match path.metadata() {
            Err(error) => Err(refused(&error.to_string())),
            Ok(metadata) if !metadata.is_file() => Err(refused("it is no file")),
            Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
                Err(refused("it is not executable"))
            }
            Ok(_) => Ok(path),
        }
    }
}

impl fmt::Debug for Unpacked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_held = self.cached.is_some() || self.held.is_some();
        f.debug_struct("Unpacked")
            .field("folder", &self.folder)
            .field("is_held", &is_held)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_an_executable_file_within_its_package() {
        let folder = tempfile::tempdir().expect("a folder");
        let package = Unpacked::new(folder.path());
        std::fs::write(folder.path().join("notes.txt"), "").expect("written");
        std::fs::create_dir(folder.path().join("data")).expect("made");
        for executable in ["", "none", "notes.txt", "data", "../sh", "/bin/sh", "./x"] {
            let program = ProgramRef {
                package: "0".into(),
                executable: executable.into(),
                arguments: Vec::new(),
            };
            let error = package.executable(&program).expect_err(executable);
            assert_eq!(error.code(), ErrorCode::StartFailed, "{executable}");
        }
    }
}
