//! Fixtures: a folder with a store, packages, other processes, and polling.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ardea_core::Result;
use ardea_scheduler::artifacts::*;

/// The files of each package.
pub mod package {
    /// A file that each package has.
    pub const FILE: &str = "data/content";
    /// A program that each package has.
    pub const PROGRAM: &str = "bin/program";
}

/// A runtime of two threads.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// A folder for one test.
pub struct Site(tempfile::TempDir);

impl Site {
    pub fn new() -> Self {
        Site(tempfile::tempdir().expect("a folder"))
    }

    pub fn root(&self) -> &Path {
        self.0.path()
    }

    pub fn store_folder(&self) -> PathBuf {
        self.root().join("store")
    }

    pub fn store(&self) -> DirectoryStore {
        DirectoryStore::new(self.store_folder(), &StoreOptions::default())
    }

    /// Serves the store.
    pub async fn serve(&self, options: &StoreOptions) -> PackageServer {
        let store = DirectoryStore::new(self.store_folder(), options);
        PackageServer::bind("127.0.0.1:0", store, options)
            .await
            .expect("a free port")
    }

    /// Creates a package of about `bytes` bytes, distinguished by `name`.
    pub fn package(&self, name: &str, bytes: usize) -> Packed {
        let folder = self.root().join("sources").join(name);
        fs::create_dir_all(folder.join("data")).expect("made");
        fs::create_dir_all(folder.join("bin")).expect("made");
        // Incompressible bytes.
        let mut state = name
            .bytes()
            .fold(1u64, |sum, byte| sum * 31 + u64::from(byte));
        let mut noise = Vec::with_capacity(bytes + 8);
        while noise.len() < bytes {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            noise.extend_from_slice(&(state ^ state >> 29).to_le_bytes());
        }
        fs::write(folder.join(package::FILE), noise).expect("written");
        let program = folder.join(package::PROGRAM);
        fs::write(&program, format!("#!/bin/sh\necho {name}\nexec cat\n")).expect("written");
        let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, runs).expect("set");
        let contents = Contents::of_folder(&folder).expect("read");
        contents.pack(self.root().join("packed")).expect("packed")
    }

    /// Changes a byte of a package in the store.
    pub fn damage_store(&self, digest: &Digest) {
        let path = self.store_folder().join(format!("{digest}.tar.zst"));
        let mut bytes = fs::read(&path).expect("there");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).expect("written");
    }

    fn store_names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.store_folder())
            .into_iter()
            .flatten()
            .flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// Returns true if a package is being received by the store.
    pub fn is_receiving(&self) -> bool {
        self.store_names().iter().any(|name| name.starts_with('.'))
    }

    /// Returns the number of visible packages in the store.
    pub fn stored(&self) -> usize {
        self.store_names()
            .iter()
            .filter(|name| !name.starts_with('.'))
            .count()
    }

    /// Checks that no incomplete file is left, once the writers have ended.
    pub fn assert_store_has_only_packages(&self) {
        eventually(|| (!self.is_receiving()).then_some(()));
    }
}

/// Returns all bytes of a package in a store.
pub async fn collected(store: &dyn PackageStore, digest: &Digest) -> Result<Vec<u8>> {
    let mut download = store.get(digest).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = download.next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until there is a result.
pub fn eventually<T>(poll: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < deadline, "it never happened");
        thread::park_timeout(Duration::from_millis(1));
    }
}

/// Polls asynchronously until there is a result.
pub async fn eventually_async<T>(poll: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    let mut looks = tokio::time::interval(Duration::from_millis(2));
    loop {
        looks.tick().await;
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < deadline, "it never happened");
    }
}

/// The variables with the role and arguments of a test that runs in another process.
const ROLE: &str = "ARDEA_PACKAGES_TEST_ROLE";
const ARGUMENTS: &str = "ARDEA_PACKAGES_TEST_ARGUMENTS";

/// Runs `act` if this is the other process of this role; otherwise does nothing.
pub fn as_other_process(role: &str, act: impl FnOnce(Vec<String>)) {
    if env::var(ROLE).as_deref() == Ok(role) {
        let arguments = env::var(ARGUMENTS).expect("arguments");
        act(arguments.split('\n').map(String::from).collect());
    }
}

/// This test program in another process, which is killed on drop.
pub struct OtherProcess(Child);

impl OtherProcess {
    /// Runs the test of this name in this role.
    pub fn start(test: &str, role: &str, arguments: &[PathBuf]) -> Self {
        let arguments: Vec<_> = arguments
            .iter()
            .map(|path| path.to_string_lossy())
            .collect();
        let child = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, role)
            .env(ARGUMENTS, arguments.join("\n"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("started");
        OtherProcess(child)
    }

    /// Waits for its end; returns true on success.
    pub fn ended_well(mut self) -> bool {
        self.0.wait().expect("a child").success()
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
